# To add a file: its name, one per line, in one of these lists. Sources and private
# headers go to the first; headers that users of the library include to the second.
libtrireme_la_SOURCES += \
	src/nn/balance.c \
	src/nn/balance.h \
	src/nn/channels_last.c \
	src/nn/channels_last.h \
	src/nn/conv_chain.c \
	src/nn/conv_chain.h \
	src/nn/decoder.c \
	src/nn/decoder.h \
	src/nn/fusion.c \
	src/nn/fusion.h \
	src/nn/graph.c \
	src/nn/groups.c \
	src/nn/layer.c \
	src/nn/layers/activation.c \
	src/nn/layers/add.c \
	src/nn/layers/attention.c \
	src/nn/layers/batch_norm.c \
	src/nn/layers/conv2d.c \
	src/nn/layers/dropout.c \
	src/nn/layers/flatten.c \
	src/nn/layers/layers.h \
	src/nn/layers/linear.c \
	src/nn/layers/reshard.c \
	src/nn/layers/norm.c \
	src/nn/layers/pool.c \
	src/nn/layers/position.c \
	src/nn/lora.c \
	src/nn/lora.h \
	src/nn/loss.c \
	src/nn/model.c \
	src/nn/model_bind.c \
	src/nn/model_freeze.c \
	src/nn/model_loss.c \
	src/nn/model_parameters.c \
	src/nn/model_pass.c \
	src/nn/model_pass.h \
	src/nn/model_private.h \
	src/nn/model_text.c \
	src/nn/model_text.h \
	src/nn/model_train.c \
	src/nn/param_load.c \
	src/nn/param_load.h \
	src/nn/param_names.c \
	src/nn/param_names.h \
	src/nn/muon.c \
	src/nn/optimizer.c \
	src/nn/partition.c \
	src/nn/arena_plan.c \
	src/nn/arena_plan.h \
	src/nn/presets.c \
	src/nn/recompute.c \
	src/nn/sample.c \
	src/nn/sample.h \
	src/nn/schedule.c \
	src/nn/sharding.c
nninclude_HEADERS += \
	src/nn/partition.h \
	src/nn/graph.h \
	src/nn/input.h \
	src/nn/layer.h \
	src/nn/loss.h \
	src/nn/model.h \
	src/nn/optimizer.h \
	src/nn/sharding.h

# To add a script: its name in trm_test_scripts. To add a test program: its name in
# trm_test_programs, and one line with its sources, such as
#   tests_unit_test_status_SOURCES = tests/unit/test_status.c $(trm_program_extra)
# Files that tests read go to EXTRA_DIST. The end of Makefile.am configures how tests run.
# trm_test_helpers: programs that scripts run.
trm_test_helpers = tests/support/compare_weights tests/support/mismatch
trm_test_programs += \
	tests/unit/test_a2cid2 \
	tests/unit/test_arena \
	tests/unit/test_async_collect \
	tests/unit/test_async_delays \
	tests/unit/test_async_local \
	tests/unit/test_async_peers \
	tests/unit/test_async_server_weights \
	tests/unit/test_async_ssp \
	tests/unit/test_async_turns \
	tests/unit/test_augment \
	tests/unit/test_background \
	tests/unit/test_batch_assignment \
	tests/unit/test_checkpoint \
	tests/unit/test_cipher \
	tests/unit/test_coll \
	tests/unit/test_comm \
	tests/unit/test_compress \
	tests/unit/test_convolution \
	tests/unit/test_damage \
	tests/unit/test_datasets \
	tests/unit/test_decoder \
	tests/unit/test_device_ranks \
	tests/unit/test_doctor \
	tests/unit/test_document \
	tests/unit/test_energy \
	tests/unit/test_event_file \
	tests/unit/test_exchange \
	tests/unit/test_full_disk \
	tests/unit/test_hdf5_faults \
	tests/unit/test_fusion \
	tests/unit/test_hogwild \
	tests/unit/test_images \
	tests/unit/test_import \
	tests/unit/test_import_images \
	tests/unit/test_import_numpy \
	tests/unit/test_import_table \
	tests/unit/test_kernels \
	tests/unit/test_buddy \
	tests/unit/test_local_state \
	tests/unit/test_mapped \
	tests/unit/test_losses \
	tests/unit/test_measures \
	tests/unit/test_memory \
	tests/unit/test_model \
	tests/unit/test_muon \
	tests/unit/test_nn \
	tests/unit/test_onnx \
	tests/unit/test_optimizer \
	tests/unit/test_options \
	tests/unit/test_param_server \
	tests/unit/test_parallel \
	tests/unit/test_pipeline \
	tests/unit/test_pipeline_versions \
	tests/unit/test_plan \
	tests/unit/test_random \
	tests/unit/test_recompute \
	tests/unit/test_recordings \
	tests/unit/test_replica_identities \
	tests/unit/test_replicas \
	tests/unit/test_step \
	tests/unit/test_reference \
	tests/unit/test_reference_images \
	tests/unit/test_reference_sequences \
	tests/unit/test_reference_values \
	tests/unit/test_resume \
	tests/unit/test_sample \
	tests/unit/test_schedule \
	tests/unit/test_schedules \
	tests/unit/test_self \
	tests/unit/test_scores \
	tests/unit/test_sequences \
	tests/unit/test_sha256 \
	tests/unit/test_shares \
	tests/unit/test_slowdown \
	tests/unit/test_staleness \
	tests/unit/test_stall \
	tests/unit/test_status \
	tests/unit/test_sweep \
	tests/unit/test_sync \
	tests/unit/test_sync_compress \
	tests/unit/test_sync_lanes \
	tests/unit/test_sync_state \
	tests/unit/test_tensor \
	tests/unit/test_thread_level \
	tests/unit/test_tokens \
	tests/unit/test_untrusted \
	tests/unit/test_validation \
	tests/unit/test_topology \
	tests/unit/test_trace \
	tests/unit/test_trainer \
	tests/unit/test_virtual \
	tests/unit/test_zero \
	tests/unit/test_zero_state
trm_test_job_folder = tests/unit/job_folder.h tests/unit/dataset_files.h tests/unit/ranks.h $(trm_program_extra)
tests_unit_test_augment_SOURCES = tests/unit/test_augment.c $(trm_test_job_folder)
trm_test_method = tests/unit/method.h tests/unit/ranks.h $(trm_program_extra)
trm_test_async_job = tests/unit/async_job.h $(trm_test_method)
tests_unit_test_async_server_weights_SOURCES = tests/unit/test_async_server_weights.c $(trm_test_async_job)
tests_unit_test_async_local_SOURCES = tests/unit/test_async_local.c $(trm_test_async_job)
trm_test_async_race = tests/unit/async_race.h $(trm_test_async_job)
tests_unit_test_async_collect_SOURCES = tests/unit/test_async_collect.c $(trm_test_async_race)
tests_unit_test_async_delays_SOURCES = tests/unit/test_async_delays.c $(trm_test_async_race)
tests_unit_test_async_ssp_SOURCES = tests/unit/test_async_ssp.c $(trm_test_async_job)
trm_test_peers = tests/unit/peers.h $(trm_test_method)
tests_unit_test_async_peers_SOURCES = tests/unit/test_async_peers.c $(trm_test_peers)
tests_unit_test_a2cid2_SOURCES = tests/unit/test_a2cid2.c $(trm_test_peers)
tests_unit_test_async_turns_SOURCES = tests/unit/test_async_turns.c $(trm_test_peers)
tests_unit_test_background_SOURCES = tests/unit/test_background.c $(trm_program_extra)
tests_unit_test_batch_assignment_SOURCES = tests/unit/test_batch_assignment.c tests/unit/ranks.h $(trm_program_extra)
tests_unit_test_comm_SOURCES = tests/unit/test_comm.c tests/unit/deferred_window.h tests/unit/ranks.h $(trm_program_extra)
tests_unit_test_mapped_SOURCES = tests/unit/test_mapped.c tests/unit/ranks.h $(trm_program_extra)
tests_unit_test_trace_SOURCES = tests/unit/test_trace.c tests/unit/ranks.h $(trm_program_extra)
tests_unit_test_topology_SOURCES = tests/unit/test_topology.c $(trm_program_extra)
tests_unit_test_trainer_SOURCES = tests/unit/test_trainer.c tests/unit/dataset_files.h $(trm_program_extra)
tests_unit_test_buddy_SOURCES = tests/unit/test_buddy.c $(trm_test_job_folder)
tests_unit_test_local_state_SOURCES = tests/unit/test_local_state.c $(trm_test_job_folder)
tests_unit_test_plan_SOURCES = tests/unit/test_plan.c tests/support/pretend_device.c tests/support/pretend_device.h \
	$(trm_program_extra)
tests_unit_test_slowdown_SOURCES = tests/unit/test_slowdown.c $(trm_program_extra)
tests_unit_test_stall_SOURCES = tests/unit/test_stall.c $(trm_program_extra)
tests_unit_test_staleness_SOURCES = tests/unit/test_staleness.c tests/unit/ranks.h $(trm_program_extra)
tests_unit_test_param_server_SOURCES = tests/unit/test_param_server.c tests/unit/ranks.h $(trm_program_extra)
tests_unit_test_hogwild_SOURCES = tests/unit/test_hogwild.c tests/unit/deferred_window.h $(trm_test_method)
tests_unit_test_doctor_SOURCES = tests/unit/test_doctor.c cli/doctor.h cli/doctor_judge.c $(trm_program_extra)
tests_unit_test_document_SOURCES = tests/unit/test_document.c tests/unit/messages.h $(trm_program_extra)
tests_unit_test_losses_SOURCES = tests/unit/test_losses.c $(trm_test_reference)
tests_unit_test_measures_SOURCES = tests/unit/test_measures.c tests/unit/ranks.h $(trm_test_reference)
tests_unit_test_memory_SOURCES = tests/unit/test_memory.c $(trm_program_extra)
tests_unit_test_options_SOURCES = tests/unit/test_options.c tests/unit/messages.h $(trm_program_extra)
tests_unit_test_random_SOURCES = tests/unit/test_random.c $(trm_program_extra)
tests_unit_test_self_SOURCES = tests/unit/test_self.c tests/unit/child.h tests/unit/messages.h $(trm_program_extra)
tests_unit_test_thread_level_SOURCES = tests/unit/test_thread_level.c $(trm_program_extra)
tests_unit_test_shares_SOURCES = tests/unit/test_shares.c $(trm_program_extra)
tests_unit_test_energy_SOURCES = tests/unit/test_energy.c $(trm_program_extra)
tests_unit_test_event_file_SOURCES = tests/unit/test_event_file.c tests/unit/messages.h \
	$(trm_program_extra)
tests_unit_test_sha256_SOURCES = tests/unit/test_sha256.c $(trm_program_extra)
tests_unit_test_status_SOURCES = tests/unit/test_status.c tests/unit/child.h $(trm_program_extra)
tests_unit_test_sweep_SOURCES = tests/unit/test_sweep.c tests/unit/messages.h cli/sweep.h cli/sweep_axes.c \
	cli/sweep_select.c cli/sweep_statistics.c cli/sweep_variants.c $(trm_program_extra)
tests_unit_test_resume_SOURCES = tests/unit/test_resume.c tests/unit/child.h tests/unit/dataset_files.h \
	$(trm_program_extra)
tests_unit_test_checkpoint_SOURCES = tests/unit/test_checkpoint.c tests/unit/dataset_files.h $(trm_program_extra)
tests_unit_test_coll_SOURCES = tests/unit/test_coll.c $(trm_program_extra)
tests_unit_test_compress_SOURCES = tests/unit/test_compress.c $(trm_program_extra)
tests_unit_test_virtual_SOURCES = tests/unit/test_virtual.c $(trm_program_extra)
tests_unit_test_untrusted_SOURCES = tests/unit/test_untrusted.c tests/unit/dataset_files.h $(trm_program_extra)
tests_unit_test_cipher_SOURCES = tests/unit/test_cipher.c tests/unit/dataset_files.h $(trm_program_extra)
tests_unit_test_damage_SOURCES = tests/unit/test_damage.c tests/unit/dataset_files.h $(trm_program_extra)
tests_unit_test_full_disk_SOURCES = tests/unit/test_full_disk.c tests/unit/dataset_files.h $(trm_program_extra)
tests_unit_test_hdf5_faults_SOURCES = tests/unit/test_hdf5_faults.c tests/unit/dataset_files.h $(trm_program_extra)
tests_unit_test_datasets_SOURCES = tests/unit/test_datasets.c $(trm_test_job_folder)
tests_unit_test_validation_SOURCES = tests/unit/test_validation.c $(trm_test_job_folder)
trm_test_imports = tests/unit/dataset_files.h tests/unit/import_files.h $(trm_program_extra)
tests_unit_test_images_SOURCES = tests/unit/test_images.c $(trm_test_imports)
tests_unit_test_tokens_SOURCES = tests/unit/test_tokens.c $(trm_test_imports)
tests_unit_test_import_SOURCES = tests/unit/test_import.c $(trm_test_imports)
tests_unit_test_import_table_SOURCES = tests/unit/test_import_table.c $(trm_test_imports)
tests_unit_test_import_numpy_SOURCES = tests/unit/test_import_numpy.c $(trm_test_imports)
tests_unit_test_import_images_SOURCES = tests/unit/test_import_images.c $(trm_test_imports)
# Shared by tests that run on every device.
AM_CPPFLAGS += -I$(top_srcdir)/tests
trm_test_devices = \
	tests/support/on_devices.c \
	tests/support/on_devices.h \
	tests/support/pretend_device.c \
	tests/support/pretend_device.h
trm_test_nn = $(trm_test_devices) tests/support/nn_case.c tests/support/nn_case.h $(trm_program_extra)
tests_unit_test_decoder_SOURCES = tests/unit/test_decoder.c $(trm_test_nn)
tests_unit_test_arena_SOURCES = tests/unit/test_arena.c $(trm_test_nn)
tests_unit_test_convolution_SOURCES = tests/unit/test_convolution.c $(trm_test_nn)
tests_unit_test_exchange_SOURCES = tests/unit/test_exchange.c $(trm_test_nn)
tests_unit_test_fusion_SOURCES = tests/unit/test_fusion.c $(trm_test_nn)
tests_unit_test_kernels_SOURCES = \
	tests/unit/kernels.h \
	tests/unit/kernels_activations.c \
	tests/unit/kernels_flat.c \
	tests/unit/kernels_fused.c \
	tests/unit/kernels_fused_reference.c \
	tests/unit/kernels_images.c \
	tests/unit/kernels_last.c \
	tests/unit/kernels_large.c \
	tests/unit/kernels_losses.c \
	tests/unit/kernels_products.c \
	tests/unit/kernels_recorded.c \
	tests/unit/kernels_rows.c \
	tests/unit/kernels_sequences.c \
	tests/unit/kernels_sparse.c \
	tests/unit/kernels_step.c \
	tests/unit/kernels_values.c \
	tests/unit/test_kernels.c \
	$(trm_test_devices) $(trm_program_extra)
trm_test_method_devices = tests/unit/method_devices.h $(trm_test_method) $(trm_test_devices)
tests_unit_test_device_ranks_SOURCES = tests/unit/test_device_ranks.c tests/unit/job_folder.h \
	tests/unit/dataset_files.h $(trm_test_method_devices)
trm_test_sync_job = tests/unit/sync_job.h $(trm_test_method_devices)
tests_unit_test_sync_SOURCES = tests/unit/test_sync.c $(trm_test_sync_job)
tests_unit_test_replica_identities_SOURCES = tests/unit/test_replica_identities.c tests/unit/replicas_job.h \
	$(trm_test_method)
tests_unit_test_replicas_SOURCES = tests/unit/test_replicas.c tests/unit/replicas_job.h $(trm_test_method)
tests_unit_test_sync_compress_SOURCES = tests/unit/test_sync_compress.c $(trm_test_sync_job)
tests_unit_test_muon_SOURCES = tests/unit/test_muon.c tests/support/nn_case.c tests/support/nn_case.h \
	$(trm_test_sync_job)
tests_unit_test_sync_lanes_SOURCES = tests/unit/test_sync_lanes.c $(trm_test_sync_job)
tests_unit_test_sync_state_SOURCES = tests/unit/test_sync_state.c $(trm_test_sync_job)
trm_test_zero_job = tests/unit/zero_job.h $(trm_test_method_devices)
tests_unit_test_zero_SOURCES = tests/unit/test_zero.c $(trm_test_zero_job)
tests_unit_test_zero_state_SOURCES = tests/unit/test_zero_state.c $(trm_test_zero_job)
tests_unit_test_model_SOURCES = tests/unit/test_model.c $(trm_test_nn)
tests_unit_test_nn_SOURCES = tests/unit/test_nn.c $(trm_test_nn)
tests_unit_test_onnx_SOURCES = tests/unit/test_onnx.c $(trm_test_nn)
tests_unit_test_optimizer_SOURCES = tests/unit/test_optimizer.c $(trm_program_extra)
trm_test_stage = tests/unit/pipeline_stage.h tests/unit/ranks.h $(trm_test_nn)
tests_unit_test_parallel_SOURCES = tests/unit/test_parallel.c $(trm_program_extra)
tests_unit_test_pipeline_SOURCES = tests/unit/test_pipeline.c $(trm_test_stage)
tests_unit_test_pipeline_versions_SOURCES = tests/unit/test_pipeline_versions.c $(trm_test_stage)
tests_unit_test_reference_images_SOURCES = tests/unit/test_reference_images.c $(trm_test_reference)
tests_unit_test_reference_sequences_SOURCES = tests/unit/test_reference_sequences.c $(trm_test_reference)
tests_unit_test_reference_values_SOURCES = tests/unit/test_reference_values.c $(trm_test_reference)
tests_unit_test_step_SOURCES = tests/unit/test_step.c $(trm_test_devices) $(trm_program_extra)
tests_unit_test_recordings_SOURCES = tests/unit/test_recordings.c $(trm_test_devices) $(trm_program_extra)
tests_unit_test_recompute_SOURCES = tests/unit/test_recompute.c $(trm_test_nn)
tests_unit_test_sample_SOURCES = tests/unit/test_sample.c $(trm_program_extra)
tests_unit_test_schedule_SOURCES = tests/unit/test_schedule.c $(trm_program_extra)
tests_unit_test_schedules_SOURCES = tests/unit/test_schedules.c $(trm_test_method)
tests_unit_test_scores_SOURCES = tests/unit/test_scores.c $(trm_test_nn)
tests_unit_test_sequences_SOURCES = tests/unit/test_sequences.c $(trm_test_nn)
tests_unit_test_tensor_SOURCES = tests/unit/test_tensor.c tests/unit/ranks.h $(trm_test_nn)
trm_test_reference = tests/support/reference.c tests/support/reference.h $(trm_test_nn)
tests_unit_test_reference_SOURCES = tests/unit/test_reference.c $(trm_test_reference)
# Preloaded by tests/faults.sh, tests/kills.sh and tests/restarts.sh.
check_LTLIBRARIES += tests/support/faults.la
tests_support_faults_la_SOURCES = tests/support/faults.c
tests_support_faults_la_CFLAGS = $(AM_CFLAGS) -fvisibility=default
tests_support_faults_la_LDFLAGS = -module -avoid-version -shared -rpath $(abs_builddir)
tests_support_faults_la_LIBADD = -ldl -lpthread
# Preloaded by tests/verify.sh.
check_LTLIBRARIES += tests/support/bitflip.la
tests_support_bitflip_la_SOURCES = tests/support/bitflip.c
tests_support_bitflip_la_CFLAGS = $(AM_CFLAGS) -fvisibility=default
tests_support_bitflip_la_LDFLAGS = -module -avoid-version -shared -rpath $(abs_builddir)
tests_support_bitflip_la_LIBADD = -ldl
# Preloaded by tests/doctor.sh, regions.sh and guides.sh; nvml stands for the driver's library in cuda.sh.
check_LTLIBRARIES += tests/support/no_fsync.la tests/support/uneven_blas.la tests/support/regions.la \
	tests/support/nvml.la
tests_support_no_fsync_la_SOURCES = tests/support/no_fsync.c
tests_support_no_fsync_la_CFLAGS = $(AM_CFLAGS) -fvisibility=default
tests_support_no_fsync_la_LDFLAGS = -module -avoid-version -shared -rpath $(abs_builddir)
tests_support_regions_la_SOURCES = tests/support/regions.c
tests_support_regions_la_CFLAGS = $(AM_CFLAGS) -fvisibility=default
tests_support_regions_la_LDFLAGS = -module -avoid-version -shared -rpath $(abs_builddir)
tests_support_nvml_la_SOURCES = tests/support/nvml.c
tests_support_nvml_la_LDFLAGS = -module -avoid-version -shared -rpath $(abs_builddir)
tests_support_uneven_blas_la_SOURCES = tests/support/uneven_blas.c
tests_support_uneven_blas_la_CFLAGS = $(AM_CFLAGS) -fvisibility=default
tests_support_uneven_blas_la_LDFLAGS = -module -avoid-version -shared -rpath $(abs_builddir)
# Preloaded by tests/encrypted_messages.sh and tests/doctor_hosts.sh.
check_LTLIBRARIES += tests/support/shifted_clock.la
tests_support_shifted_clock_la_SOURCES = tests/support/shifted_clock.c
tests_support_shifted_clock_la_CFLAGS = $(AM_CFLAGS) -fvisibility=default
tests_support_shifted_clock_la_LDFLAGS = -module -avoid-version -shared -rpath $(abs_builddir)
tests_support_shifted_clock_la_LIBADD = -ldl

check_LTLIBRARIES += tests/support/wire.la
tests_support_wire_la_SOURCES = tests/support/wire.c
tests_support_wire_la_CFLAGS = $(AM_CFLAGS) $(MPI_CFLAGS) -fvisibility=default
tests_support_wire_la_LDFLAGS = -module -avoid-version -shared -rpath $(abs_builddir)
# The module for GPUs on the host (tests/cuda): its kernels by the emulator, its host code by the mock of the runtime.
trm_test_module = \
	tests/cuda/blas.cpp \
	tests/cuda/emulated.cpp \
	tests/cuda/emulator.cpp \
	tests/cuda/emulator.h \
	tests/cuda/emulator_tensor.h \
	tests/cuda/include/cublasLt.h \
	tests/cuda/include/cublas_v2.h \
	tests/cuda/include/cuda_runtime_api.h \
	tests/cuda/runtime.cpp
EXTRA_DIST += $(trm_test_module) tests/cuda/test_emulator.cpp
if TRM_CXX
check_LTLIBRARIES += tests/cuda/trireme_cuda.la
tests_cuda_trireme_cuda_la_SOURCES = $(trm_test_module) $(trm_cuda_host)
tests_cuda_trireme_cuda_la_CPPFLAGS = -DTRM_CUDA_EMULATOR -I$(top_srcdir)/tests/cuda/include \
	-I$(top_srcdir)/tests -I$(top_srcdir)/src -I$(top_srcdir)
tests_cuda_trireme_cuda_la_CXXFLAGS = -std=c++17 -O2 -g -Wall -Wextra -Wno-unknown-pragmas -Wno-pass-failed \
	-ffp-contract=off $(TRM_SANITIZE)
tests_cuda_trireme_cuda_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared -rpath $(abs_builddir)
# Kernels with planted bugs, for tests/cuda.sh.
trm_test_helpers += tests/cuda/test_emulator
tests_cuda_test_emulator_SOURCES = \
	tests/cuda/emulator.cpp \
	tests/cuda/runtime.cpp \
	tests/cuda/test_emulator.cpp
tests_cuda_test_emulator_CPPFLAGS = $(tests_cuda_trireme_cuda_la_CPPFLAGS)
tests_cuda_test_emulator_CXXFLAGS = $(tests_cuda_trireme_cuda_la_CXXFLAGS)
endif
# For scripts: the difference between two checkpoints.
tests_support_mismatch_SOURCES = tests/support/mismatch.c $(trm_program_extra)
tests_support_compare_weights_SOURCES = tests/support/compare_weights.c $(trm_program_extra)
# Run by tests/fuzz.sh, in a build of its own.
EXTRA_PROGRAMS = tests/fuzz/fuzz tests/fuzz/seeds
tests_fuzz_fuzz_SOURCES = \
	tests/fuzz/fuzz.c \
	tests/fuzz/fuzz.h \
	tests/fuzz/fuzz_edits.c \
	tests/fuzz/fuzz_encrypted.c \
	tests/fuzz/fuzz_files.h \
	tests/fuzz/fuzz_hdf5.c \
	tests/fuzz/fuzz_import.c \
	tests/fuzz/fuzz_run.c \
	tests/fuzz/fuzz_settings.c \
	$(trm_cli) \
	$(trm_program_extra)
tests_fuzz_fuzz_LDFLAGS = $(AM_LDFLAGS) -fsanitize=fuzzer
tests_fuzz_seeds_SOURCES = tests/fuzz/seeds.c tests/fuzz/fuzz_files.h tests/unit/dataset_files.h $(trm_program_extra)
trm_test_scripts += \
	tests/check_includes.sh \
	tests/check_links.sh \
	tests/check_statics.sh \
	tests/check_words.sh \
	tests/installed.sh \
	tests/readme.sh \
	tests/guides.sh \
	tests/buddy.sh \
	tests/bad_input.sh \
	tests/combinations.sh \
	tests/completion.sh \
	tests/compress.sh \
	tests/data_import.sh \
	tests/import_ranks.sh \
	tests/cuda.sh \
	tests/encryption.sh \
	tests/encrypted_messages.sh \
	tests/signatures.sh \
	tests/energy.sh \
	tests/regions.sh \
	tests/event_files.sh \
	tests/packaging.sh \
	tests/python.sh \
	tests/exchange.sh \
	tests/losses.sh \
	tests/measures.sh \
	tests/fine_tuning.sh \
	tests/fine_tuning_reference.sh \
	tests/lora.sh \
	tests/first_formats.sh \
	tests/gpu.sh \
	tests/train.sh \
	tests/async.sh \
	tests/async_batch_norm.sh \
	tests/async_peers.sh \
	tests/local_steps.sh \
	tests/hosts.sh \
	tests/faults.sh \
	tests/verify.sh \
	tests/private_files.sh \
	tests/kills.sh \
	tests/kills_hosts.sh \
	tests/restarts.sh \
	tests/lease.sh \
	tests/async_rows.sh \
	tests/stragglers.sh \
	tests/async_evaluate.sh \
	tests/models.sh \
	tests/layouts.sh \
	tests/hybrid.sh \
	tests/machine.sh \
	tests/layouts_resume.sh \
	tests/resume.sh \
	tests/bubble.sh \
	tests/pipeline_async.sh \
	tests/async_server_weights.sh \
	tests/replay.sh \
	tests/repeat.sh \
	tests/values.sh \
	tests/virtual.sh \
	tests/report.sh \
	tests/report_browser.sh \
	tests/sweep.sh \
	tests/tutorial.sh \
	tests/generate.sh \
	tests/memory.sh \
	tests/zero_memory.sh \
	tests/async_methods.sh \
	tests/background.sh \
	tests/async_signal.sh \
	tests/stall.sh \
	tests/hung_files.sh \
	tests/lost_network.sh \
	tests/rank_times.sh \
	tests/sbatch.sh \
	tests/doctor.sh \
	tests/doctor_hosts.sh \
	tests/bench.sh \
	tests/plan.sh \
	tests/slurm.sh
EXTRA_DIST += $(trm_test_scripts) \
	tests/coverage.sh \
	tests/experiments.sh \
	tests/kills_job.sh \
	tests/fuzz.sh \
	tests/fuzz/corpus \
	tests/bench/README.md \
	tests/bench/allreduce.sh \
	tests/bench/allreduce_gloo.py \
	tests/bench/allreduce_hosts.sh \
	tests/bench/compare_all.sh \
	tests/bench/compare_torch.sh \
	tests/bench/compress_accuracy.sh \
	tests/bench/encrypted_io.sh \
	tests/bench/hosts.sh \
	tests/bench/import.sh \
	tests/bench/io_vs_cat.sh \
	tests/bench/layouts_vs_torch.sh \
	tests/bench/ledger.sh \
	tests/bench/verify.sh \
	tests/bench/lib.sh \
	tests/bench/link.py \
	tests/bench/busy.sh \
	tests/bench/calibrate.sh \
	tests/bench/plan_vs_train.sh \
	tests/bench/generate.sh \
	tests/bench/onnx_generate.py \
	tests/bench/predict.sh \
	tests/bench/saves.sh \
	tests/bench/scaling.sh \
	tests/bench/shares.sh \
	tests/bench/virtual.sh \
	tests/bench/torch_layouts.py \
	tests/bench/torch_peer.py \
	tests/layouts.md \
	tests/fine_tuning_lib.sh \
	tests/layouts_lib.sh \
	tests/hosts_lib.sh \
	tests/slurm_lib.sh \
	tests/gpu/parts.sh \
	tests/gpu/peer.py \
	tests/gpu/run \
	tests/gpu/table.awk \
	tests/lib.sh \
	tests/mutations.sh \
	tests/mutations/async.sh \
	tests/mutations/coll.sh \
	tests/mutations/compress.sh \
	tests/mutations/data.sh \
	tests/mutations/kernels.sh \
	tests/mutations/layers.sh \
	tests/mutations/memory.sh \
	tests/mutations/messages.sh \
	tests/mutations/sync.sh \
	tests/mutations/trainer.sh \
	tests/reference/check_events.py \
	tests/reference/check_mlflow.py \
	tests/reference/check_onnx.py \
	tests/reference/make_events.py \
	tests/reference/check_safetensors.py \
	tests/reference/augment.txt \
	tests/reference/make_augment.py \
	tests/reference/gpt2.safetensors \
	tests/reference/bpe_merges.txt \
	tests/reference/bpe_text.txt \
	tests/reference/bpe_tokens.txt \
	tests/reference/bpe_vocab.json \
	tests/reference/first \
	tests/reference/gradients.txt \
	tests/reference/image_files.txt \
	tests/reference/images.txt \
	tests/reference/fine_tuning.txt \
	tests/reference/make_fine_tuning.py \
	tests/reference/make_first.sh \
	tests/reference/make_image_files.py \
	tests/reference/make_bpe.py \
	tests/reference/make_images.py \
	tests/reference/losses.txt \
	tests/reference/make_losses.py \
	tests/reference/make_measures.py \
	tests/reference/measures.txt \
	tests/reference/make_exchange.py \
	tests/reference/make_reference.py \
	tests/reference/numpy_files.txt \
	tests/reference/onnx.txt \
	tests/reference/resnet.safetensors \
	tests/reference/make_sequences.py \
	tests/reference/make_numpy.py \
	tests/reference/make_table.py \
	tests/reference/make_values.py \
	tests/reference/sequences.txt \
	tests/reference/table.csv \
	tests/reference/table.txt \
	tests/reference/values.txt \
	tests/reference/training.txt \
	tests/run_matrix.sh \
	tests/turns.sh \
	tests/unit/suite.h

# Launcher of test programs; it gets the program's path. Empty: the program itself.
trm_test_launcher = bash $(top_srcdir)/tests/run_matrix.sh

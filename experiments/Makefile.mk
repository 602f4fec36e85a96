# To add an experiment: the names of its files, one per line.
EXTRA_DIST += \
	experiments/quickstart/README.md \
	experiments/quickstart/config.yaml \
	experiments/quickstart/quickstart.sbatch
EXTRA_DIST += \
	experiments/hybrid/README.md \
	experiments/hybrid/config.yaml \
	experiments/hybrid/hetjob.sbatch \
	experiments/hybrid/mpmd.sbatch
EXTRA_DIST += \
	experiments/lenet5-fashion/README.md \
	experiments/lenet5-fashion/config.yaml \
	experiments/lenet5-fashion/curves.svg
EXTRA_DIST += \
	experiments/gpt-shakespeare/README.md \
	experiments/gpt-shakespeare/config.yaml \
	experiments/gpt-shakespeare/curves.svg
EXTRA_DIST += \
	experiments/resnet20-fashion/README.md \
	experiments/resnet20-fashion/config.yaml \
	experiments/resnet20-fashion/curves.svg
EXTRA_DIST += \
	experiments/async-methods/README.md \
	experiments/async-methods/a9a.yaml \
	experiments/async-methods/fashion.yaml \
	experiments/async-methods/methods.txt \
	experiments/async-methods/run.sh \
	experiments/async-methods/runs.csv \
	experiments/async-methods/table.md
EXTRA_DIST += \
	experiments/pipedream-versions/README.md \
	experiments/pipedream-versions/config.yaml \
	experiments/pipedream-versions/curves.svg \
	experiments/pipedream-versions/methods.txt \
	experiments/pipedream-versions/run.sh \
	experiments/pipedream-versions/table.md
EXTRA_DIST += \
	experiments/staleness-rate/README.md \
	experiments/staleness-rate/config.yaml \
	experiments/staleness-rate/curves.svg \
	experiments/staleness-rate/run.sh \
	experiments/staleness-rate/runs.csv \
	experiments/staleness-rate/table.md
EXTRA_DIST += \
	experiments/local-sgd/README.md \
	experiments/local-sgd/config.yaml \
	experiments/local-sgd/methods.txt \
	experiments/local-sgd/run.sh \
	experiments/local-sgd/runs.csv \
	experiments/local-sgd/table.md

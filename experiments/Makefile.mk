# To add an experiment: the names of its files, one a line.
EXTRA_DIST += \
	experiments/quickstart/README.md \
	experiments/quickstart/config.yaml \
	experiments/quickstart/quickstart.sbatch

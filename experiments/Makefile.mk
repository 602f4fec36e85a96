# To add an experiment: the names of its files, one per line.
EXTRA_DIST += \
	experiments/README.md \
	experiments/check.awk \
	experiments/check.sh \
	experiments/lib.sh
EXTRA_DIST += \
	experiments/00-methods/README.md \
	experiments/00-methods/a9a.yaml \
	experiments/00-methods/config.yaml \
	experiments/00-methods/expected.json \
	experiments/00-methods/methods.txt \
	experiments/00-methods/paper.sbatch \
	experiments/00-methods/picture.svg \
	experiments/00-methods/run.sh \
	experiments/00-methods/table.awk \
	experiments/00-methods/table.md
EXTRA_DIST += \
	experiments/01-staleness-rate/README.md \
	experiments/01-staleness-rate/config.yaml \
	experiments/01-staleness-rate/expected.json \
	experiments/01-staleness-rate/paper.sbatch \
	experiments/01-staleness-rate/picture.svg \
	experiments/01-staleness-rate/run.sh \
	experiments/01-staleness-rate/short.txt \
	experiments/01-staleness-rate/table.md \
	experiments/01-staleness-rate/variants.txt
EXTRA_DIST += \
	experiments/02-elastic-averaging/README.md \
	experiments/02-elastic-averaging/config.yaml \
	experiments/02-elastic-averaging/expected.json \
	experiments/02-elastic-averaging/paper.sbatch \
	experiments/02-elastic-averaging/picture.svg \
	experiments/02-elastic-averaging/run.sh \
	experiments/02-elastic-averaging/table.md \
	experiments/02-elastic-averaging/variants.txt
EXTRA_DIST += \
	experiments/03-sparse-data/README.md \
	experiments/03-sparse-data/config.yaml \
	experiments/03-sparse-data/describe.awk \
	experiments/03-sparse-data/expected.json \
	experiments/03-sparse-data/kept.md \
	experiments/03-sparse-data/paper.sbatch \
	experiments/03-sparse-data/picture.svg \
	experiments/03-sparse-data/retuned.md \
	experiments/03-sparse-data/rows.awk \
	experiments/03-sparse-data/rows.md \
	experiments/03-sparse-data/run.sh \
	experiments/03-sparse-data/short.txt \
	experiments/03-sparse-data/table.md \
	experiments/03-sparse-data/variants.txt
EXTRA_DIST += \
	experiments/04-implicit-momentum/README.md \
	experiments/04-implicit-momentum/config.yaml \
	experiments/04-implicit-momentum/expected.json \
	experiments/04-implicit-momentum/fit.awk \
	experiments/04-implicit-momentum/paper.sbatch \
	experiments/04-implicit-momentum/picture.awk \
	experiments/04-implicit-momentum/picture.svg \
	experiments/04-implicit-momentum/run.sh \
	experiments/04-implicit-momentum/table.md \
	experiments/04-implicit-momentum/variants.txt
EXTRA_DIST += \
	experiments/05-delay-compensation/README.md \
	experiments/05-delay-compensation/config.yaml \
	experiments/05-delay-compensation/expected.json \
	experiments/05-delay-compensation/paper.sbatch \
	experiments/05-delay-compensation/picture.svg \
	experiments/05-delay-compensation/run.sh \
	experiments/05-delay-compensation/table.md \
	experiments/05-delay-compensation/variants.txt
EXTRA_DIST += \
	experiments/06-error-feedback/README.md \
	experiments/06-error-feedback/config.yaml \
	experiments/06-error-feedback/expected.json \
	experiments/06-error-feedback/paper.sbatch \
	experiments/06-error-feedback/picture.svg \
	experiments/06-error-feedback/run.sh \
	experiments/06-error-feedback/table.md \
	experiments/06-error-feedback/variants.txt
EXTRA_DIST += \
	experiments/07-stragglers/README.md \
	experiments/07-stragglers/config.yaml \
	experiments/07-stragglers/expected.json \
	experiments/07-stragglers/paper.sbatch \
	experiments/07-stragglers/run.sh \
	experiments/07-stragglers/slow.md \
	experiments/07-stragglers/table.md \
	experiments/07-stragglers/variants.txt
EXTRA_DIST += \
	experiments/08-local-sgd/README.md \
	experiments/08-local-sgd/config.yaml \
	experiments/08-local-sgd/expected.json \
	experiments/08-local-sgd/paper.sbatch \
	experiments/08-local-sgd/picture.svg \
	experiments/08-local-sgd/run.sh \
	experiments/08-local-sgd/table.md \
	experiments/08-local-sgd/variants.txt
EXTRA_DIST += \
	experiments/09-batch-size/README.md \
	experiments/09-batch-size/config.yaml \
	experiments/09-batch-size/expected.json \
	experiments/09-batch-size/paper.sbatch \
	experiments/09-batch-size/picture.svg \
	experiments/09-batch-size/run.sh \
	experiments/09-batch-size/table.md \
	experiments/09-batch-size/variants.txt
EXTRA_DIST += \
	experiments/10-identities/README.md \
	experiments/10-identities/config.yaml \
	experiments/10-identities/expected.json \
	experiments/10-identities/pairs.txt \
	experiments/10-identities/run.sh \
	experiments/10-identities/table.md
EXTRA_DIST += \
	experiments/11-backup-workers/README.md \
	experiments/11-backup-workers/compare.awk \
	experiments/11-backup-workers/config.yaml \
	experiments/11-backup-workers/expected.json \
	experiments/11-backup-workers/paper.sbatch \
	experiments/11-backup-workers/picture.svg \
	experiments/11-backup-workers/predict.awk \
	experiments/11-backup-workers/run.sh \
	experiments/11-backup-workers/table.md
EXTRA_DIST += \
	experiments/12-groups/README.md \
	experiments/12-groups/config.yaml \
	experiments/12-groups/expected.json \
	experiments/12-groups/paper.sbatch \
	experiments/12-groups/picture.svg \
	experiments/12-groups/run.sh \
	experiments/12-groups/table.md
EXTRA_DIST += \
	experiments/13-race/README.md \
	experiments/13-race/config.yaml \
	experiments/13-race/expected.json \
	experiments/13-race/linear.md \
	experiments/13-race/linear.svg \
	experiments/13-race/paper.sbatch \
	experiments/13-race/run.sh \
	experiments/13-race/short.txt \
	experiments/13-race/sqrt.md \
	experiments/13-race/sqrt.svg \
	experiments/13-race/stuck.md \
	experiments/13-race/stuck.svg \
	experiments/13-race/stuck.txt \
	experiments/13-race/tails.md \
	experiments/13-race/tails.svg \
	experiments/13-race/tails.txt \
	experiments/13-race/variants.txt
EXTRA_DIST += \
	experiments/14-momentum-workers/README.md \
	experiments/14-momentum-workers/config.yaml \
	experiments/14-momentum-workers/expected.json \
	experiments/14-momentum-workers/paper.sbatch \
	experiments/14-momentum-workers/picture.svg \
	experiments/14-momentum-workers/run.sh \
	experiments/14-momentum-workers/table.md
EXTRA_DIST += \
	experiments/15-error-runtime/README.md \
	experiments/15-error-runtime/config.yaml \
	experiments/15-error-runtime/expected.json \
	experiments/15-error-runtime/paper.sbatch \
	experiments/15-error-runtime/picture.svg \
	experiments/15-error-runtime/run.sh \
	experiments/15-error-runtime/table.md \
	experiments/15-error-runtime/variants.txt
EXTRA_DIST += \
	experiments/16-delayed-nesterov/README.md \
	experiments/16-delayed-nesterov/config.yaml \
	experiments/16-delayed-nesterov/expected.json \
	experiments/16-delayed-nesterov/paper.sbatch \
	experiments/16-delayed-nesterov/picture.svg \
	experiments/16-delayed-nesterov/run.sh \
	experiments/16-delayed-nesterov/short.txt \
	experiments/16-delayed-nesterov/table.md \
	experiments/16-delayed-nesterov/time.svg \
	experiments/16-delayed-nesterov/variants.txt
EXTRA_DIST += \
	experiments/17-muon-delay/README.md \
	experiments/17-muon-delay/config.yaml \
	experiments/17-muon-delay/expected.json \
	experiments/17-muon-delay/paper.sbatch \
	experiments/17-muon-delay/picture.svg \
	experiments/17-muon-delay/run.sh \
	experiments/17-muon-delay/short.txt \
	experiments/17-muon-delay/table.md \
	experiments/17-muon-delay/variants.txt
EXTRA_DIST += \
	experiments/18-ring-momentum/README.md \
	experiments/18-ring-momentum/config.yaml \
	experiments/18-ring-momentum/expected.json \
	experiments/18-ring-momentum/paper.sbatch \
	experiments/18-ring-momentum/run.sh \
	experiments/18-ring-momentum/table.md \
	experiments/18-ring-momentum/variants.txt
EXTRA_DIST += \
	experiments/gpt-shakespeare/README.md \
	experiments/gpt-shakespeare/config.yaml \
	experiments/gpt-shakespeare/curves.svg
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
	experiments/pipedream-versions/README.md \
	experiments/pipedream-versions/config.yaml \
	experiments/pipedream-versions/expected.json \
	experiments/pipedream-versions/paper.sbatch \
	experiments/pipedream-versions/picture.svg \
	experiments/pipedream-versions/run.sh \
	experiments/pipedream-versions/table.md \
	experiments/pipedream-versions/variants.txt
EXTRA_DIST += \
	experiments/quickstart/README.md \
	experiments/quickstart/config.yaml \
	experiments/quickstart/quickstart.sbatch
EXTRA_DIST += \
	experiments/resnet20-fashion/README.md \
	experiments/resnet20-fashion/config.yaml \
	experiments/resnet20-fashion/curves.svg

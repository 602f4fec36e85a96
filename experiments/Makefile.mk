# To add an experiment: the names of its files, one per line.
EXTRA_DIST += \
EXTRA_DIST += \
	experiments/README.md \
EXTRA_DIST += \
	experiments/check.awk \
EXTRA_DIST += \
	experiments/check.sh \
EXTRA_DIST += \
	experiments/lib.sh
EXTRA_DIST += \
EXTRA_DIST += \
	experiments/quickstart/README.md \
EXTRA_DIST += \
	experiments/quickstart/config.yaml \
EXTRA_DIST += \
	experiments/quickstart/quickstart.sbatch
EXTRA_DIST += \
EXTRA_DIST += \
	experiments/hybrid/README.md \
EXTRA_DIST += \
	experiments/hybrid/config.yaml \
EXTRA_DIST += \
	experiments/hybrid/hetjob.sbatch \
EXTRA_DIST += \
	experiments/hybrid/mpmd.sbatch
EXTRA_DIST += \
EXTRA_DIST += \
	experiments/lenet5-fashion/README.md \
EXTRA_DIST += \
	experiments/lenet5-fashion/config.yaml \
EXTRA_DIST += \
	experiments/lenet5-fashion/curves.svg
EXTRA_DIST += \
EXTRA_DIST += \
	experiments/gpt-shakespeare/README.md \
EXTRA_DIST += \
	experiments/gpt-shakespeare/config.yaml \
EXTRA_DIST += \
	experiments/gpt-shakespeare/curves.svg
EXTRA_DIST += \
EXTRA_DIST += \
	experiments/resnet20-fashion/README.md \
EXTRA_DIST += \
	experiments/resnet20-fashion/config.yaml \
EXTRA_DIST += \
	experiments/resnet20-fashion/curves.svg
EXTRA_DIST += \
EXTRA_DIST += \
	experiments/00-methods/README.md \
EXTRA_DIST += \
	experiments/00-methods/a9a.yaml \
EXTRA_DIST += \
	experiments/00-methods/config.yaml \
EXTRA_DIST += \
	experiments/00-methods/expected.json \
EXTRA_DIST += \
	experiments/00-methods/methods.txt \
EXTRA_DIST += \
	experiments/00-methods/paper.sbatch \
EXTRA_DIST += \
	experiments/00-methods/picture.svg \
EXTRA_DIST += \
	experiments/00-methods/run.sh \
EXTRA_DIST += \
	experiments/00-methods/table.awk \
EXTRA_DIST += \
	experiments/00-methods/table.md
EXTRA_DIST += \
EXTRA_DIST += \
	experiments/pipedream-versions/README.md \
EXTRA_DIST += \
	experiments/pipedream-versions/config.yaml \
EXTRA_DIST += \
	experiments/pipedream-versions/expected.json \
EXTRA_DIST += \
	experiments/pipedream-versions/paper.sbatch \
EXTRA_DIST += \
	experiments/pipedream-versions/picture.svg \
EXTRA_DIST += \
	experiments/pipedream-versions/run.sh \
EXTRA_DIST += \
	experiments/pipedream-versions/table.md \
EXTRA_DIST += \
	experiments/pipedream-versions/variants.txt
EXTRA_DIST += \
EXTRA_DIST += \
	experiments/07-stragglers/README.md \
EXTRA_DIST += \
	experiments/07-stragglers/config.yaml \
EXTRA_DIST += \
	experiments/07-stragglers/expected.json \
EXTRA_DIST += \
	experiments/07-stragglers/paper.sbatch \
EXTRA_DIST += \
	experiments/07-stragglers/run.sh \
EXTRA_DIST += \
	experiments/07-stragglers/slow.md \
EXTRA_DIST += \
	experiments/07-stragglers/table.md \
EXTRA_DIST += \
	experiments/07-stragglers/variants.txt
EXTRA_DIST += \
EXTRA_DIST += \
	experiments/08-local-sgd/README.md \
EXTRA_DIST += \
	experiments/08-local-sgd/config.yaml \
EXTRA_DIST += \
	experiments/08-local-sgd/methods.txt \
EXTRA_DIST += \
	experiments/08-local-sgd/run.sh \
EXTRA_DIST += \
	experiments/08-local-sgd/runs.csv \
EXTRA_DIST += \
	experiments/08-local-sgd/table.md \
EXTRA_DIST += \
	experiments/08-local-sgd/tune.csv
EXTRA_DIST += \
EXTRA_DIST += \
	experiments/18-ring-momentum/README.md \
EXTRA_DIST += \
	experiments/18-ring-momentum/config.yaml \
EXTRA_DIST += \
	experiments/18-ring-momentum/expected.json \
EXTRA_DIST += \
	experiments/18-ring-momentum/paper.sbatch \
EXTRA_DIST += \
	experiments/18-ring-momentum/run.sh \
EXTRA_DIST += \
	experiments/18-ring-momentum/table.md \
EXTRA_DIST += \
	experiments/18-ring-momentum/variants.txt
EXTRA_DIST += \
EXTRA_DIST += \
	experiments/01-staleness-rate/README.md \
EXTRA_DIST += \
	experiments/01-staleness-rate/config.yaml \
EXTRA_DIST += \
	experiments/01-staleness-rate/expected.json \
EXTRA_DIST += \
	experiments/01-staleness-rate/paper.sbatch \
EXTRA_DIST += \
	experiments/01-staleness-rate/picture.svg \
EXTRA_DIST += \
	experiments/01-staleness-rate/run.sh \
EXTRA_DIST += \
	experiments/01-staleness-rate/short.txt \
EXTRA_DIST += \
	experiments/01-staleness-rate/table.md \
EXTRA_DIST += \
	experiments/01-staleness-rate/variants.txt
EXTRA_DIST += \
EXTRA_DIST += \
	experiments/02-elastic-averaging/README.md \
EXTRA_DIST += \
	experiments/02-elastic-averaging/config.yaml \
EXTRA_DIST += \
	experiments/02-elastic-averaging/expected.json \
EXTRA_DIST += \
	experiments/02-elastic-averaging/paper.sbatch \
EXTRA_DIST += \
	experiments/02-elastic-averaging/picture.svg \
EXTRA_DIST += \
	experiments/02-elastic-averaging/run.sh \
EXTRA_DIST += \
	experiments/02-elastic-averaging/table.md \
EXTRA_DIST += \
	experiments/02-elastic-averaging/variants.txt
EXTRA_DIST += \
EXTRA_DIST += \
	experiments/03-sparse-data/README.md \
EXTRA_DIST += \
	experiments/03-sparse-data/config.yaml \
EXTRA_DIST += \
	experiments/03-sparse-data/describe.awk \
EXTRA_DIST += \
	experiments/03-sparse-data/expected.json \
EXTRA_DIST += \
	experiments/03-sparse-data/kept.md \
EXTRA_DIST += \
	experiments/03-sparse-data/paper.sbatch \
EXTRA_DIST += \
	experiments/03-sparse-data/picture.svg \
EXTRA_DIST += \
	experiments/03-sparse-data/retuned.md \
EXTRA_DIST += \
	experiments/03-sparse-data/rows.awk \
EXTRA_DIST += \
	experiments/03-sparse-data/rows.md \
EXTRA_DIST += \
	experiments/03-sparse-data/run.sh \
EXTRA_DIST += \
	experiments/03-sparse-data/short.txt \
EXTRA_DIST += \
	experiments/03-sparse-data/table.md \
EXTRA_DIST += \
	experiments/03-sparse-data/variants.txt
EXTRA_DIST += \
EXTRA_DIST += \
	experiments/04-implicit-momentum/README.md \
EXTRA_DIST += \
	experiments/04-implicit-momentum/config.yaml \
EXTRA_DIST += \
	experiments/04-implicit-momentum/expected.json \
EXTRA_DIST += \
	experiments/04-implicit-momentum/fit.awk \
EXTRA_DIST += \
	experiments/04-implicit-momentum/paper.sbatch \
EXTRA_DIST += \
	experiments/04-implicit-momentum/picture.awk \
EXTRA_DIST += \
	experiments/04-implicit-momentum/picture.svg \
EXTRA_DIST += \
	experiments/04-implicit-momentum/run.sh \
EXTRA_DIST += \
	experiments/04-implicit-momentum/table.md \
EXTRA_DIST += \
	experiments/04-implicit-momentum/variants.txt
EXTRA_DIST += \
EXTRA_DIST += \
	experiments/05-delay-compensation/README.md \
EXTRA_DIST += \
	experiments/05-delay-compensation/config.yaml \
EXTRA_DIST += \
	experiments/05-delay-compensation/expected.json \
EXTRA_DIST += \
	experiments/05-delay-compensation/paper.sbatch \
EXTRA_DIST += \
	experiments/05-delay-compensation/picture.svg \
EXTRA_DIST += \
	experiments/05-delay-compensation/run.sh \
EXTRA_DIST += \
	experiments/05-delay-compensation/table.md \
EXTRA_DIST += \
	experiments/05-delay-compensation/variants.txt
EXTRA_DIST += \
EXTRA_DIST += \
	experiments/06-error-feedback/README.md \
EXTRA_DIST += \
	experiments/06-error-feedback/config.yaml \
EXTRA_DIST += \
	experiments/06-error-feedback/expected.json \
EXTRA_DIST += \
	experiments/06-error-feedback/paper.sbatch \
EXTRA_DIST += \
	experiments/06-error-feedback/picture.svg \
EXTRA_DIST += \
	experiments/06-error-feedback/run.sh \
EXTRA_DIST += \
	experiments/06-error-feedback/table.md \
EXTRA_DIST += \
	experiments/06-error-feedback/variants.txt
EXTRA_DIST += \
EXTRA_DIST += \
	experiments/09-batch-size/README.md \
EXTRA_DIST += \
	experiments/09-batch-size/config.yaml \
EXTRA_DIST += \
	experiments/09-batch-size/expected.json \
EXTRA_DIST += \
	experiments/09-batch-size/paper.sbatch \
EXTRA_DIST += \
	experiments/09-batch-size/picture.svg \
EXTRA_DIST += \
	experiments/09-batch-size/run.sh \
EXTRA_DIST += \
	experiments/09-batch-size/table.md \
EXTRA_DIST += \
	experiments/09-batch-size/variants.txt
EXTRA_DIST += \
EXTRA_DIST += \
	experiments/10-identities/README.md \
EXTRA_DIST += \
	experiments/10-identities/config.yaml \
EXTRA_DIST += \
	experiments/10-identities/expected.json \
EXTRA_DIST += \
	experiments/10-identities/pairs.txt \
EXTRA_DIST += \
	experiments/10-identities/run.sh \
EXTRA_DIST += \
	experiments/10-identities/table.md
EXTRA_DIST += \
	experiments/11-backup-workers/README.md \
EXTRA_DIST += \
	experiments/11-backup-workers/compare.awk \
EXTRA_DIST += \
	experiments/11-backup-workers/config.yaml \
EXTRA_DIST += \
	experiments/11-backup-workers/expected.json \
EXTRA_DIST += \
	experiments/11-backup-workers/paper.sbatch \
EXTRA_DIST += \
	experiments/11-backup-workers/picture.svg \
EXTRA_DIST += \
	experiments/11-backup-workers/predict.awk \
EXTRA_DIST += \
	experiments/11-backup-workers/run.sh \
EXTRA_DIST += \
	experiments/11-backup-workers/table.md
EXTRA_DIST += \
EXTRA_DIST += \
	experiments/12-groups/README.md \
EXTRA_DIST += \
	experiments/12-groups/config.yaml \
EXTRA_DIST += \
	experiments/12-groups/expected.json \
EXTRA_DIST += \
	experiments/12-groups/paper.sbatch \
EXTRA_DIST += \
	experiments/12-groups/picture.svg \
EXTRA_DIST += \
	experiments/12-groups/run.sh \
EXTRA_DIST += \
	experiments/12-groups/table.md
EXTRA_DIST += \
EXTRA_DIST += \
	experiments/13-race/README.md \
EXTRA_DIST += \
	experiments/13-race/config.yaml \
EXTRA_DIST += \
	experiments/13-race/expected.json \
EXTRA_DIST += \
	experiments/13-race/linear.md \
EXTRA_DIST += \
	experiments/13-race/linear.svg \
EXTRA_DIST += \
	experiments/13-race/paper.sbatch \
EXTRA_DIST += \
	experiments/13-race/run.sh \
EXTRA_DIST += \
	experiments/13-race/short.txt \
EXTRA_DIST += \
	experiments/13-race/sqrt.md \
EXTRA_DIST += \
	experiments/13-race/sqrt.svg \
EXTRA_DIST += \
	experiments/13-race/stuck.md \
EXTRA_DIST += \
	experiments/13-race/stuck.svg \
EXTRA_DIST += \
	experiments/13-race/stuck.txt \
EXTRA_DIST += \
	experiments/13-race/tails.md \
EXTRA_DIST += \
	experiments/13-race/tails.svg \
EXTRA_DIST += \
	experiments/13-race/tails.txt \
EXTRA_DIST += \
	experiments/13-race/variants.txt
EXTRA_DIST += \
EXTRA_DIST += \
	experiments/14-momentum-workers/README.md \
EXTRA_DIST += \
	experiments/14-momentum-workers/config.yaml \
EXTRA_DIST += \
	experiments/14-momentum-workers/expected.json \
EXTRA_DIST += \
	experiments/14-momentum-workers/paper.sbatch \
EXTRA_DIST += \
	experiments/14-momentum-workers/picture.svg \
EXTRA_DIST += \
	experiments/14-momentum-workers/run.sh \
EXTRA_DIST += \
	experiments/14-momentum-workers/table.md
EXTRA_DIST += \
EXTRA_DIST += \
	experiments/15-error-runtime/README.md \
EXTRA_DIST += \
	experiments/15-error-runtime/config.yaml \
EXTRA_DIST += \
	experiments/15-error-runtime/expected.json \
EXTRA_DIST += \
	experiments/15-error-runtime/paper.sbatch \
EXTRA_DIST += \
	experiments/15-error-runtime/picture.svg \
EXTRA_DIST += \
	experiments/15-error-runtime/run.sh \
EXTRA_DIST += \
	experiments/15-error-runtime/table.md \
EXTRA_DIST += \
	experiments/15-error-runtime/variants.txt
EXTRA_DIST += \
EXTRA_DIST += \
	experiments/16-delayed-nesterov/README.md \
EXTRA_DIST += \
	experiments/16-delayed-nesterov/config.yaml \
EXTRA_DIST += \
	experiments/16-delayed-nesterov/expected.json \
EXTRA_DIST += \
	experiments/16-delayed-nesterov/paper.sbatch \
EXTRA_DIST += \
	experiments/16-delayed-nesterov/picture.svg \
EXTRA_DIST += \
	experiments/16-delayed-nesterov/run.sh \
EXTRA_DIST += \
	experiments/16-delayed-nesterov/short.txt \
EXTRA_DIST += \
	experiments/16-delayed-nesterov/table.md \
EXTRA_DIST += \
	experiments/16-delayed-nesterov/time.svg \
EXTRA_DIST += \
	experiments/16-delayed-nesterov/variants.txt
EXTRA_DIST += \
EXTRA_DIST += \
	experiments/17-muon-delay/README.md \
EXTRA_DIST += \
	experiments/17-muon-delay/config.yaml \
EXTRA_DIST += \
	experiments/17-muon-delay/expected.json \
EXTRA_DIST += \
	experiments/17-muon-delay/paper.sbatch \
EXTRA_DIST += \
	experiments/17-muon-delay/picture.svg \
EXTRA_DIST += \
	experiments/17-muon-delay/run.sh \
EXTRA_DIST += \
	experiments/17-muon-delay/short.txt \
EXTRA_DIST += \
	experiments/17-muon-delay/table.md \
EXTRA_DIST += \
	experiments/17-muon-delay/variants.txt

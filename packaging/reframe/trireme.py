"""ReFrame: reframe -C SITE.py -c packaging/reframe/trireme.py -r. Each partition trains the digits on two nodes."""
import reframe as rfm
import reframe.utility.sanity as sn


@rfm.simple_test
class TriremeTrains(rfm.RunOnlyRegressionTest):
    descr = "two nodes train the digits; weights of all ranks, accuracy and samples per second"
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    modules = ["trireme"]
    executable = "trireme"
    num_tasks_per_node = variable(int, value=4)
    nodes = variable(int, value=2)
    strategy = parameter(["sync", "asgd"])
    keep_files = ["run/summary.json", "run/record.json"]

    @run_before("run")
    def set_job(self):
        self.num_tasks = self.nodes * self.num_tasks_per_node
        self.prerun_cmds = ["trireme data make digits --out=digits.h5 --train=10000 --test=2000 --seed=1"]
        self.executable_opts = ["train", "--model='mlp 784-256-10 relu'", "--data.file=digits.h5", "--train.epochs=3",
                                f"--strategy.name={self.strategy}", "--run.dir=run"]
        self.postrun_cmds = ["cat run/summary.json"]

    @sanity_function
    def check(self):
        accuracy = sn.extractsingle(r'"test_accuracy":([0-9.]+)', self.stdout, 1, float)
        return sn.all([sn.assert_found(r'"status":"done"', self.stdout),
                       sn.assert_found(rf'"ranks":{self.num_tasks}\b', self.stdout), sn.assert_ge(accuracy, 0.5)])

    @performance_function("samples/s")
    def speed(self):
        return sn.extractsingle(r'"samples_per_s":([0-9.eE+]+)', self.stdout, 1, float)

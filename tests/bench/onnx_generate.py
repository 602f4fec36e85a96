"""Tokens a second of a GPT in onnxruntime: generate.sh. Greedy continuation of a prompt, on THREADS threads.

    onnx_generate.py MODEL.onnx CACHE|WHOLE THREADS TOKENS PROMPT...       PROMPT: numbers of tokens

WHOLE runs `trireme export`'s graph, which computes all positions for each token. CACHE runs a graph with the same
weights that is made here for onnxruntime's attention with a key-value cache in place (GroupQueryAttention), as its own
tools write GPTs. Prints a line: seconds a token, then the tokens.
"""
import sys
import time

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

path, kind, threads, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
prompt = [int(token) for token in sys.argv[5:]]
model = onnx.load(path)
weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
items = [item.split() for item in model.metadata_props[0].value.split(" | ")]
context = model.graph.input[0].type.tensor_type.shape.dim[1].dim_value


class Cached:
    """The graph with caches, of the items of the model's text."""

    def __init__(self):
        self.nodes, self.tensors, self.inputs, self.outputs, self.marks = [], [], [], [], {}
        self.caches = []
        value = "tokens"
        for number, item in enumerate(items):
            arguments = dict(word.split("=") for word in item[1:] if "=" in word)
            value = getattr(self, item[0])(number, value, arguments, item)
        scores = self.node("Identity", [value], "scores")
        self.inputs[:0] = [
            self.info("tokens", TensorProto.INT64, [1, "new"]), self.info("positions", TensorProto.INT64, ["new"]),
            self.info("last", TensorProto.INT32, [1]), self.info("length", TensorProto.INT32, [])]
        self.outputs[:0] = [self.info(scores, TensorProto.FLOAT, [1, "new", None])]
        graph = helper.make_graph(self.nodes, "cached", self.inputs, self.outputs, self.tensors)
        self.bytes = helper.make_model(graph, ir_version=8, opset_imports=[
            helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]).SerializeToString()

    def info(self, name, kind, shape):
        return helper.make_tensor_value_info(name, kind, shape)

    def weight(self, name, transposed=False):
        array = numpy.ascontiguousarray(weights[name].T if transposed else weights[name])
        self.tensors.append(numpy_helper.from_array(array, name + (".t" if transposed else "")))
        return self.tensors[-1].name

    def node(self, kind, inputs, output, extra=(), **attributes):
        self.nodes.append(helper.make_node(kind, inputs, [output, *extra], **attributes))
        return output

    def embedding(self, number, x, _, item):
        return self.node("Gather", [self.weight("layer0.weight"), x], f"v{number}")

    def position(self, number, x, _, item):
        rows = self.node("Gather", [self.weight(f"layer{number}.weight"), "positions"], f"p{number}")
        return self.node("Add", [x, rows], f"v{number}")

    def mark(self, number, x, _, item):
        self.marks[item[1]] = x
        return x

    def add(self, number, x, _, item):
        return self.node("Add", [x, self.marks[item[1]]], f"v{number}")

    def layer_norm(self, number, x, _, item):
        inputs = [x, self.weight(f"layer{number}.weight"), self.weight(f"layer{number}.bias")]
        return self.node("LayerNormalization", inputs, f"v{number}", epsilon=1e-5)

    def linear(self, number, x, _, item):
        product = self.node("MatMul", [x, self.weight(f"layer{number}.weight", True)], f"m{number}")
        return self.node("Add", [product, self.weight(f"layer{number}.bias")], f"v{number}")

    def gelu(self, number, x, _, item):
        return self.node("FastGelu", [x], f"v{number}", domain="com.microsoft")

    def head(self, number, x, _, item):
        return self.node("MatMul", [x, self.weight("layer0.weight", True)], f"v{number}")

    def attention(self, number, x, arguments, item):
        heads = int(arguments["heads"])
        width = weights["layer0.weight"].shape[1]
        parts = [f"q{number}", f"k{number}", f"u{number}"]
        self.node("Split", [x], parts[0], parts[1:], axis=-1)
        shape = [1, heads, context, width // heads]
        names = [f"key{number}", f"value{number}"]
        self.inputs += [self.info(f"{name}.past", TensorProto.FLOAT, shape) for name in names]
        self.outputs += [self.info(name, TensorProto.FLOAT, shape) for name in names]
        self.caches += [(name, shape) for name in names]
        inputs = parts + [f"{name}.past" for name in names] + ["last", "length"]
        return self.node("GroupQueryAttention", inputs, f"v{number}", names, domain="com.microsoft", num_heads=heads,
                         kv_num_heads=heads)


options = onnxruntime.SessionOptions()
options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
options.log_severity_level = 3
cached = Cached() if kind == "CACHE" else None
session = onnxruntime.InferenceSession(cached.bytes if cached else path, options, providers=["CPUExecutionProvider"])


def whole(text):
    window = numpy.zeros((1, context), "i8")
    window[0, :len(text)] = text[-context:]
    return session.run(None, {"tokens": window})[0][0, min(len(text), context) - 1]


class Steps:
    """Passes over new tokens; arrays of inputs, outputs and caches are bound once for each number of them."""

    def __init__(self):
        value = onnxruntime.OrtValue.ortvalue_from_numpy
        self.cache = {name: value(numpy.zeros(shape, "f4")) for name, shape in cached.caches}
        self.last, self.length = value(numpy.zeros(1, "i4")), value(numpy.zeros((), "i4"))
        self.bound = {}

    def bind(self, new):
        value, io = onnxruntime.OrtValue.ortvalue_from_numpy, session.io_binding()
        own = {"tokens": value(numpy.zeros((1, new), "i8")), "positions": value(numpy.zeros(new, "i8"))}
        scores = value(numpy.zeros((1, new, len(weights["layer0.weight"])), "f4"))
        for name, array in {**own, "last": self.last, "length": self.length}.items():
            io.bind_ortvalue_input(name, array)
        for name, array in self.cache.items():
            io.bind_ortvalue_input(name + ".past", array)
            io.bind_ortvalue_output(name, array)
        io.bind_ortvalue_output("scores", scores)
        return io, own, scores

    def run(self, tokens, past):
        new = len(tokens)
        if new not in self.bound:
            self.bound[new] = self.bind(new)
        io, own, scores = self.bound[new]
        own["tokens"].update_inplace(numpy.array([tokens], "i8"))
        own["positions"].update_inplace(numpy.arange(past, past + new, dtype="i8"))
        self.last.update_inplace(numpy.array([past + new - 1], "i4"))
        self.length.update_inplace(numpy.array(past + new, "i4"))
        session.run_with_iobinding(io)
        return scores.numpy()[0, -1]


def generate(tokens):
    steps, text, past = Steps() if cached else None, list(prompt), 0
    for _ in range(tokens):
        scores = steps.run(text[past:], past) if cached else whole(text)
        past = len(text)
        text.append(int(scores.argmax()))
    return text[len(prompt):]


generate(2)
begin = time.perf_counter()
text = generate(count)
print((time.perf_counter() - begin) / count, *text)

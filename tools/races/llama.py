"""llama.cpp, alone or with this library's plugin for ggml, through the C functions that its Python package declares."""
import ctypes
import multiprocessing
import os
import random
import sys
import time

from ggml import QUIET
from peer import Absent, imported, needs, settle


def _kilobytes(of):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(of + ":"))


class Llama:
    """One model in one context. A plugin is loaded into the whole process: see Apart."""

    def __init__(self, folder, model, threads, context, flash_attention=True, plugin=None, compute="int8", model_settings=(),
                 context_settings=()):
        """The settings are pairs of a member of llama_model_params or llama_context_params and its value."""
        self.name = "llama.cpp" if flash_attention else "llama.cpp -fa off"
        if plugin:
            self.name += f" with the plugin {compute}"
            os.environ["GGML_METAL_MARLIN_COMPUTE"] = compute
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
        self.l = imported("llama_cpp")
        self.l.llama_log_set(QUIET, None)
        self.l.llama_backend_init()
        self.about = f"llama-cpp-python {self.l.__version__}, {' '.join(self.l.llama_print_system_info().decode().replace('|', ' ').split())}"
        params = self.l.llama_model_default_params()
        params.n_gpu_layers = 0
        if plugin:
            self._use(plugin, params)
        for member, value in model_settings:
            setattr(params, member, value)
        self.before = _kilobytes("VmRSS")
        self.file, self.model_params = model, params
        params = self.l.llama_context_default_params()
        params.n_ctx, params.n_threads, params.n_threads_batch = context, threads, threads
        if not flash_attention:  # else it decides
            params.flash_attn_type = self.l.LLAMA_FLASH_ATTN_TYPE_DISABLED
        for member, value in context_settings:
            setattr(params, member, value)
        self.context_params = params
        self._load()
        vocabulary = self.l.llama_model_get_vocab(self.model)
        self.vocabulary = self.l.llama_vocab_n_tokens(vocabulary)
        self.opening = [self.l.llama_vocab_bos(vocabulary)] if self.l.llama_vocab_get_add_bos(vocabulary) else []

    def _load(self):
        self.model = self.l.llama_model_load_from_file(str(self.file).encode(), self.model_params)
        needs(self.model, f"it does not read {self.file}")
        self.context = self.l.llama_init_from_model(self.model, self.context_params)
        needs(self.context, "it makes no context")

    def load_again(self):
        """Frees the model and loads it once more in the same process."""
        self.close()
        self._load()

    def kilobytes(self, of="VmHWM"):
        """Memory of the process above what it had before the model: the most there was, or with VmRSS what there is."""
        return _kilobytes(of) - self.before

    def _use(self, plugin, params):
        """As `-dev METAL-MARLIN -ngl 99` of llama.cpp's programs."""
        ggml = ctypes.CDLL(os.path.join(os.path.dirname(self.l.__file__), "lib", "libggml.so"))
        ggml.ggml_backend_load.restype = ggml.ggml_backend_reg_dev_get.restype = ctypes.c_void_p
        ggml.ggml_backend_load.argtypes, ggml.ggml_backend_reg_dev_get.argtypes = [ctypes.c_char_p], [ctypes.c_void_p, ctypes.c_size_t]
        registry = ggml.ggml_backend_load(str(plugin).encode())
        needs(registry, f"it does not load {plugin}")
        self.devices = (ctypes.c_void_p * 2)(ggml.ggml_backend_reg_dev_get(registry, 0), None)
        params.devices, params.n_gpu_layers = ctypes.addressof(self.devices), 99

    def _decode(self, batch):
        if self.l.llama_decode(self.context, batch) != 0:
            raise RuntimeError("llama_decode failed")
        self.l.llama_synchronize(self.context)

    def _forget(self):
        self.l.llama_memory_clear(self.l.llama_get_memory(self.context), False)

    def time(self, prompt, generate):
        """The seconds of one run. A batch gives the logits of its last token."""
        draw = lambda count: (self.l.llama_token * count)(*random.choices(range(self.vocabulary), k=count))
        batches = [(draw(prompt), prompt)] if prompt else [(draw(1), 1) for _ in range(generate)]
        self._forget()
        start = time.perf_counter()
        for tokens, count in batches:
            self._decode(self.l.llama_batch_get_one(tokens, count))
        seconds = time.perf_counter() - start
        settle()
        return seconds

    def _logits(self, sequences):
        """Of each token of each sequence, all in one batch."""
        import numpy as np
        rows = [(token, at, which) for which, tokens in enumerate(sequences) for at, token in enumerate(tokens)]
        batch = self.l.llama_batch_init(len(rows), 0, 1)
        batch.n_tokens = len(rows)
        for i, (token, at, which) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = token, at, 1, which, 1
        self._decode(batch)
        logits = np.ctypeslib.as_array(self.l.llama_get_logits(self.context), (len(rows), self.vocabulary)).astype(np.float64)
        self.l.llama_batch_free(batch)
        return logits

    def adapt(self, file, scale):
        """Adds the LoRA adapter of this file to what is computed."""
        adapter = self.l.llama_adapter_lora_init(self.model, str(file).encode())
        needs(adapter, f"it does not read {file}")
        adapters, scales = (self.l.llama_adapter_lora_p_ctypes * 1)(adapter), (ctypes.c_float * 1)(scale)
        if self.l.llama_set_adapters_lora(self.context, adapters, 1, scales) != 0:
            raise RuntimeError("llama_set_adapters_lora failed")

    def log_probabilities(self, *sequences):
        """Of every token of the vocabulary, after each token of each sequence; float64 [tokens, vocabulary]."""
        import numpy as np
        self._forget()
        logits = self._logits(sequences)
        logits -= logits.max(1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(1, keepdims=True))

    def nats(self, _text, tokens):
        found = self.log_probabilities(self.opening + tokens)[len(self.opening):-1]
        return float(-found[range(len(found)), tokens[1:]].mean())

    def tokens(self, text):
        buffer = (self.l.llama_token * len(text.encode()))()
        vocabulary = self.l.llama_model_get_vocab(self.model)
        count = self.l.llama_tokenize(vocabulary, text.encode(), len(text.encode()), buffer, len(buffer), False, False)
        return self.opening + list(buffer[:count])

    def generate(self, tokens, count):
        """The most probable tokens, one after another, and the log-probability of each above the second most probable one."""
        import numpy as np
        self._forget()
        chosen, margins = [], []
        for _ in range(count):
            batch = (self.l.llama_token * len(tokens))(*tokens)
            self._decode(self.l.llama_batch_get_one(batch, len(tokens)))
            logits = np.ctypeslib.as_array(self.l.llama_get_logits_ith(self.context, -1), (self.vocabulary,))
            second, first = np.argpartition(logits, -2)[-2:]
            chosen.append(int(first))
            margins.append(float(logits[first] - logits[second]))
            tokens = [int(first)]
        return chosen, margins

    def close(self):
        self.l.llama_free(self.context)
        self.l.llama_model_free(self.model)


def _serve(pipe, arguments, settings):
    try:
        llama = Llama(*arguments, **settings)
        pipe.send((llama.name, llama.about))
    except Absent as why:
        pipe.send(why)
        return
    for method, given in iter(pipe.recv, None):
        try:
            pipe.send(getattr(llama, method)(*given))
        except Exception as error:  # the other process shows it
            pipe.send(error)
    llama.close()


class Apart:
    """A Llama in a process of its own, so that what it loads meets nobody else. Has its methods."""

    def __init__(self, *arguments, **settings):
        processes = multiprocessing.get_context("spawn")
        self.pipe, there = processes.Pipe()
        self.process = processes.Process(target=_serve, args=(there, arguments, settings), daemon=True)
        self.process.start()
        there.close()
        self.name, self.about = self._answer()

    def _answer(self):
        try:
            found = self.pipe.recv()
        except EOFError:
            self.process.join()
            raise RuntimeError(f"llama.cpp ended with status {self.process.exitcode}") from None
        if isinstance(found, Exception):
            raise found
        return found

    def __getattr__(self, method):
        def call(*given):
            self.pipe.send((method, given))
            return self._answer()
        return call

    def close(self):
        self.pipe.send(None)
        self.process.join()

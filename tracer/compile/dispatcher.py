"""A compiled function: its programs, which Python calls, and its parts, which other compiled functions call.

`tracer.compile.library` says why there are two, and what a function apart is. A part is made when numba infers the
types of a caller. Programs and parts are looked up in the cache first (`tracer.compile.cache`).
"""

import gc
import hashlib
import importlib
from contextlib import contextmanager
from typing import ClassVar

from numba.core import compiler, types, typing
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import _FunctionCompiler  # type: ignore[attr-defined]
from numba.core.event import trigger_event
from numba.core.funcdesc import default_mangler
from numba.core.registry import CPUDispatcher

from tracer.compile.cache import KernelCache, NoCache, signature_text
from tracer.compile.library import Part, PartLibrary, ProgramLibrary


class Dispatcher(CPUDispatcher):
    """A compiled function."""

    known: ClassVar[dict[tuple[str, str], "Dispatcher"]] = {}
    """All compiled functions by (module, qualified name): the last one of those that share both."""

    def __init__(self, function, options, source, apart):
        """Args: function; options: of numba; source: file of the function, None if it must not be stored; apart."""
        super().__init__(function, targetoptions=options)
        self.stored = source is not None
        self.apart = apart
        self._compiler = _Compiler(self)
        self._cache = NoCache() if source is None else KernelCache(function, source, _library_of)
        self._parts = {}
        self._keys = {}
        self.known[function.__module__, function.__qualname__] = self

    def _reduce_states(self):
        """For pickle: a compiled function is found again by its name."""
        return {"module": self.py_func.__module__, "name": self.py_func.__qualname__}

    @classmethod
    def _rebuild(cls, module, name):
        importlib.import_module(module)
        return cls.known[module, name]

    def compile(self, sig):
        """Get the program for argument types. numba calls this when Python calls the function."""
        with _no_garbage_collection():
            return super().compile(sig)

    def get_call_template(self, args, kws):
        """Get the types of a call. numba calls this when it infers the types of a caller.

        A constant is passed like any number. numba would compile the function anew for each constant, but where the
        constant matters, LLVM finds it after it has inlined the function.
        """
        pysig, args = self.fold_argument_types(args, kws)
        args = tuple(types.unliteral(kind) for kind in args)
        name = self.py_func.__name__
        signatures = [self.part(args).signature]
        return typing.make_concrete_template(name, key=name, signatures=signatures), pysig, args, {}

    def get_overload(self, sig):
        """The object under which numba finds the code that a caller calls."""
        return self._keys[tuple(sig)]

    @global_compiler_lock
    def part(self, args):
        """The part for argument types (a tuple), from the cache or compiled now."""
        if args not in self._parts:
            part = self._part_apart(args) if self.apart else self._part_of_caller(args)
            self._parts[args], self._keys[args] = part, object()
            self.targetctx.insert_user_function(self._keys[args], part.fndesc, [part.library])
        return self._parts[args]

    def _part_of_caller(self, args):
        """The part that its callers are linked with."""
        part = self._cache.load_part(args, self.targetctx)
        if part is None:
            result = self._compiled(self._compiler.compile_part, args)
            result.library.finalize()
            part = _part_of(result)
            self._cache.save_part(args, part)
        return part

    def _part_apart(self, args):
        """The part whose machine code its callers find by its symbol."""
        result = self._cache.load_apart(args, self.targetctx)
        if result is None:
            result = self._compiled(self._compiler.compile_apart, args)
            self._cache.save_apart(args, result)
        return _part_of(result)

    def _compiled(self, compile_it, args):
        with self._compiling_counter, trigger_event("numba:compile", data={"dispatcher": self, "args": args}):
            return compile_it(args)

    def symbol(self, name, args, *, abi_tags=(), uid=None):
        """Name of a function in LLVM code: the same in all processes that share a cache, and short.

        numba's own names contain the text of all argument types: up to 25,000 characters.
        """
        own = self._cache.folder or uid
        text = f"{signature_text(args)}; {abi_tags}; {own}"
        return default_mangler(name, (), abi_tags=(hashlib.sha256(text.encode()).hexdigest()[:20],))


def _part_of(result):
    """The part that numba's result of a compilation holds."""
    result.fndesc.typemap = result.fndesc.calltypes = None  # not needed any more, and large
    return Part(result.library, result.fndesc, result.signature, result.environment, result.reload_init)


class _Flags(compiler.Flags):
    """Flags that are compared by the values that are set. numba compares all 22 values, 50,000 times."""

    __slots__ = ()

    def __hash__(self):
        return hash(tuple(sorted(self._values)))

    def __eq__(self, other):
        return isinstance(other, _Flags) and self._values == other._values


class _Compiler(_FunctionCompiler):
    """Compiles one function, as a program or as a part."""

    def __init__(self, dispatcher):
        options = (dispatcher.targetdescr, dispatcher.targetoptions, dispatcher.locals, compiler.Compiler)
        super().__init__(dispatcher.py_func, *options)
        self._target = dispatcher.targetctx.subtarget(mangler=dispatcher.symbol)
        self._stored = dispatcher.stored

    def compile_part(self, args):
        library = PartLibrary(self._target.codegen(), self._origin(args), self._stored)
        return self._compile_into(library, args, None, no_compile=True, no_cpython_wrapper=True)

    def compile_apart(self, args):
        library = ProgramLibrary(self._target.codegen(), self.py_func.__qualname__, self._origin(args))
        library.stored = self._stored
        return self._program(library, args, None, no_compile=True, no_cpython_wrapper=True)

    def _origin(self, args):
        return self.py_func.__module__, self.py_func.__qualname__, args

    def _compile_core(self, args, return_type):
        return self._program(ProgramLibrary(self._target.codegen(), self.py_func.__qualname__), args, return_type)

    def _program(self, library, args, return_type, **settings):
        result = self._compile_into(library, args, return_type, **settings)
        library._ensure_finalized()
        for environment in result._find_referenced_environments():
            library.codegen.set_env(environment.env_name, environment)
        return result

    def _compile_into(self, library, args, return_type, **settings):
        flags = _Flags()
        self.targetdescr.options.parse_as_flags(flags, self.targetoptions)
        flags.no_cfunc_wrapper = True
        for name, value in settings.items():
            setattr(flags, name, value)
        return compiler.compile_extra(
            *(self.targetdescr.typing_context, self._target, self.py_func, args, return_type, flags, self.locals),
            library=library,
            pipeline_class=self.pipeline_class,
        )


def _library_of(origin):
    """The library of a function that stored code calls; None if there is no such function any more."""
    module, name, args = origin
    try:
        return Dispatcher._rebuild(module, name).part(args).library
    except (ImportError, KeyError):
        return None


@contextmanager
def _no_garbage_collection():
    """Compilation makes millions of objects and little garbage. The collector would take a seventh of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()

"""LLVM code of compiled functions: of one function for its callers, and of a whole program.

numba makes each function ready to run on its own: it links, optimises and generates machine code for a callee, then
does all of this again for each caller, with the callee inside. Almost all functions of this project are called by other
compiled functions only. So a function is a *part* first: LLVM code, simplified, but not linked and without machine
code. A function that Python calls is a *program*: it is linked with all its parts, optimised, and turned into machine
code once. This takes half of numba's time. A large function can be a program *apart*, although compiled functions call
it: they find its machine code by its symbol, and LLVM optimises it once, whatever its callers do.
"""

from collections.abc import Callable
from typing import NamedTuple

from llvmlite import binding as llvm
from numba.core import config
from numba.core.codegen import JITCodeLibrary
from numba.core.environment import Environment
from numba.core.funcdesc import FunctionDescriptor
from numba.core.runtime import rtsys
from numba.core.typing.templates import Signature

LEVEL = min(1, config.OPT)  # type: ignore[attr-defined]
"""LLVM's level of optimisation. Higher levels take a tenth of the time of compilation; no run becomes faster."""


class _Library(JITCodeLibrary):
    """Code that LLVM optimises to LEVEL."""

    def _optimize_functions(self, module):
        module.data_layout = self._codegen._data_layout
        passes, builder = self._codegen._function_pass_manager(opt=LEVEL)
        for function in module.functions:
            passes.run(function, builder)

    def _optimize_final_module(self):
        passes, builder = self._codegen._module_pass_manager(opt=LEVEL)
        passes.add_jump_threading_pass()  # a fiftieth of a run's instructions; LEVEL lacks it
        passes.run(self._final_module, builder)


class PartLibrary(_Library):
    """Code of one compiled function, for its callers.

    Attributes:
        origin: (module, qualified name, argument types) of the function.
        stored: True if the function and all functions that it calls can be stored.
    """

    def __init__(self, codegen, origin, stored=True):
        super().__init__(codegen, origin[1])
        self.origin = origin
        self.stored = stored

    def finalize(self):
        self._finalize_dynamic_globals()
        self.stored = self.stored and not self._dynamic_globals and all(each.stored for each in self.needed_ours())
        self._finalized = True

    def _get_module_for_linking(self):
        return self._final_module

    def needed(self):
        """Libraries that the function calls, each once."""
        return list(dict.fromkeys(self._linking_libraries))

    def needed_ours(self):
        """Those of functions of this project: parts, and programs apart."""
        return [library for library in self.needed() if isinstance(library, PartLibrary | ProgramLibrary)]

    def as_bitcode(self):
        """The code as bytes, together with the code of libraries of numba that the function calls.

        numba's runtime is left out: every program has it.
        """
        module = self._final_module.clone()
        for library in self.needed():
            if not isinstance(library, PartLibrary | ProgramLibrary) and library is not rtsys.library:
                module.link_in(library._get_module_for_linking(), preserve=True)
        return module.as_bitcode()

    @classmethod
    def of_bitcode(cls, codegen, origin, bitcode, needed):
        """The library of stored bytes. needed: `needed_ours` of the library that was stored."""
        library = cls(codegen, origin)
        library._final_module = llvm.parse_bitcode(bitcode)
        library._linking_libraries += needed
        library.finalize()
        return library


class ProgramLibrary(_Library):
    """Machine code of a function that Python calls, or of a function apart, and of all its parts.

    Attributes:
        origin: (module, qualified name, argument types) of a function apart; None if Python calls it.
        stored: True if all these functions can be stored.
        needed_apart: programs apart that it calls.
    """

    def __init__(self, codegen, name, origin=None):
        super().__init__(codegen, name)
        self.origin = origin
        self.stored = True
        self.needed_apart = []
        self.enable_object_caching()

    def finalize(self):
        """Link, optimise and generate machine code.

        All that is linked becomes local: LLVM sees what it returns, and drops what is inlined everywhere.
        """
        self._raise_if_finalized()
        own = {function.name for function in self._final_module.functions if not function.is_declaration}
        for library in self._all_needed():
            self._reload_init.update(library._reload_init)
            if isinstance(library, ProgramLibrary):
                self.stored = self.stored and library.stored
                self.needed_apart.append(library)
                continue
            if isinstance(library, PartLibrary):
                self.stored = self.stored and library.stored
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        for function in self._final_module.functions:
            if not function.is_declaration and function.name not in own:
                function.linkage = "internal"
        self._optimize_final_module()
        self._final_module.verify()
        self._finalize_final_module()

    def machine_code(self):
        """(object file as bytes, names of the symbols that it defines)."""
        module = self._final_module
        defined = [
            symbol.name
            for kind in (module.functions, module.global_variables)
            for symbol in kind
            if not symbol.is_declaration
        ]
        return self._get_compiled_object(), defined

    @classmethod
    def of_machine_code(cls, codegen, name, origin, object_file, symbols):
        """The library of a stored object file, ready to run."""
        library = cls(codegen, name, origin)
        library._set_compiled_object(object_file)
        library._finalize_final_module()
        codegen._engine._defined_symbols.update(symbols)
        return library

    def _all_needed(self):
        """Libraries that the program calls, directly or through its parts, each once, in a fixed order."""
        seen, pending = {}, list(self._linking_libraries)
        while pending:
            library = pending.pop()
            if library not in seen:
                seen[library] = True
                if isinstance(library, PartLibrary):
                    pending += library.needed()
        return list(seen)


class Part(NamedTuple):
    """A compiled function for argument types, as its callers use it."""

    library: PartLibrary | ProgramLibrary
    fndesc: FunctionDescriptor
    signature: Signature
    environment: Environment
    reload_init: list[Callable[[], None]]

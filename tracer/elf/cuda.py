"""Kernel resources of CUDA cubins of both ABIs.

OSABI 51 is the ABI up to CUDA 12 (architecture in the low byte of e_flags). OSABI 65 is the ABI of CUDA 13, and of
CUDA 12.8 for sm_100 and newer (architecture in bits 8-15).
"""

from tracer.elf import nvinfo
from tracer.elf.image import SYMBOL_FUNCTION, Image, Section, Symbol, reading
from tracer.elf.names import plain_name
from tracer.elf.resources import KernelResources
from traces.errors import UserError

OS_ABI_CUDA = 51
OS_ABI_CUDA_13 = 65
ENTRY = 0x10  # STO_CUDA_ENTRY in st_other: a kernel, not a device function
CONSTANT = ".nv.constant"  # followed by the bank and the kernel that owns it
RESERVED_BYTES = 1024  # shared memory per workgroup that the system reserves
RESERVED_FROM = 90  # first architecture whose .nv.shared section contains it
LANES = 32


def is_cubin(image: Image) -> bool:
    return image.machine == "EM_CUDA"


def compute_capability(image: Image) -> int:
    """Compute capability times ten: 75, 90, 100, ..."""
    if image.os_abi == OS_ABI_CUDA:
        return image.flags & 0xFF
    if image.os_abi == OS_ABI_CUDA_13:
        return image.flags >> 8 & 0xFF
    raise UserError(f"{image.where}: CUDA ABI {image.os_abi} is not known, only {OS_ABI_CUDA} and {OS_ABI_CUDA_13}")


def architecture(image: Image) -> str:
    return f"sm_{compute_capability(image)}"


def kernels(image: Image, source: str) -> list[KernelResources]:
    """Resources of every kernel of a cubin, in order of name."""
    symbols = image.symbols()
    resources = []
    with reading(image.where):
        info = image.section(".nv.info")
        stream = info.data if info else b""
        registers = nvinfo.per_symbol(stream, nvinfo.REGCOUNT)
        frame = nvinfo.per_symbol(stream, nvinfo.FRAME_SIZE)
        stack = nvinfo.per_symbol(stream, nvinfo.MIN_STACK_SIZE)
        banks = _constant_banks(image)
        for index, symbol in enumerate(symbols):
            if symbol.kind == SYMBOL_FUNCTION and symbol.other & ENTRY and symbol.section:
                code = image.sections[symbol.section]
                count = registers.get(index) or _registers_of_header(image, code, symbol)
                local = max(frame.get(index, 0), stack.get(index, 0))
                constant = tuple(sorted(banks[""] + banks.get(symbol.name, [])))
                resources.append(_kernel(image, symbol, code, count, local, constant, source))
    return sorted(resources, key=lambda kernel: kernel.name)


def _registers_of_header(image: Image, code: Section, symbol: Symbol) -> int:
    """Registers from the header of the code section. Only the older ABI has them (0 for sm_90 and newer)."""
    count = code.info >> 24 if image.os_abi == OS_ABI_CUDA else 0
    if not count:
        raise UserError(f"{image.where}: kernel {symbol.name}: no register count (EIATTR_REGCOUNT) in .nv.info")
    return count


def _kernel(
    image: Image,
    symbol: Symbol,
    code: Section,
    registers: int,
    local: int,
    constant: tuple[tuple[int, int], ...],
    source: str,
) -> KernelResources:
    shared = image.section(f".nv.shared.{symbol.name}")
    own = image.section(f".nv.info.{symbol.name}")
    static = shared.size if shared else 0
    reserved = min(static, RESERVED_BYTES) if compute_capability(image) >= RESERVED_FROM else 0
    facts = _Facts(own.data if own else b"")
    return KernelResources(
        name=symbol.name,
        plain_name=plain_name(symbol.name),
        architecture=architecture(image),
        registers=registers,
        agprs=None,
        sgprs=None,
        shared_static_bytes=static,
        shared_reserved_bytes=reserved,
        local_bytes=local,
        constant_bytes=constant,
        max_threads=facts.max_threads,
        required_threads=facts.required,
        # the older ABI keeps the count in the flags of the code section
        barriers=code.flags >> 20 & 0x7F if facts.barriers is None else facts.barriers,
        parameters=tuple(facts.parameters[i] for i in sorted(facts.parameters)),
        lanes_per_warp=LANES,
        source=source,
    )


class _Facts:
    """Values of the `.nv.info.<kernel>` section."""

    def __init__(self, data: bytes):
        self.max_threads: int | None = None
        self.required: tuple[int, int, int] | None = None
        self.barriers: int | None = None
        self.parameters: dict[int, nvinfo.Parameter] = {}
        for number, value in nvinfo.attributes(data):
            if number == nvinfo.MAX_THREADS:
                x, y, z = nvinfo.extent(value)
                self.max_threads = x * y * z
            elif number == nvinfo.REQNTID:
                self.required = nvinfo.extent(value)
            elif number == nvinfo.NUM_BARRIERS:
                self.barriers = value[0]
            elif number in (nvinfo.KPARAM_INFO, nvinfo.KPARAM_INFO_V2):
                ordinal, parameter = nvinfo.parameter(value, number)
                self.parameters[ordinal] = parameter


def _constant_banks(image: Image) -> dict[str, list[tuple[int, int]]]:
    """Kernel -> (bank, bytes) of its own constant banks. Key "": banks that the whole module shares."""
    banks: dict[str, list[tuple[int, int]]] = {"": []}
    for section in image.sections:
        if section.name.startswith(CONSTANT):
            bank, _, owner = section.name.removeprefix(CONSTANT).partition(".")
            if bank.isdecimal():
                banks.setdefault(owner, []).append((int(bank), section.size))
    return banks

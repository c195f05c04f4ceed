// SPDX-License-Identifier: Apache-2.0
//! A loaded module: its kernels, ready to run, and its variables.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::cubin::Cubin;
use crate::error::{Fault, FaultKind, ParseError, Refusal};
use crate::execute::code::Code;
use crate::execute::grid::{self, Launch, Stats};
use crate::memory::DeviceMemory;
use crate::parser::parse;
use crate::syntax::Source;
use crate::translate::{self, Parameter, Symbols, VariableInfo};

/// Most threads that a block may have.
const MOST_THREADS: u64 = 1024;

/// PTX of one or several sources, linked.
#[derive(Clone)]
pub struct Module {
    texts: Vec<Arc<str>>,
    variables: Vec<VariableInfo>,
    images: Vec<Vec<u8>>,
    kernels: HashMap<String, Arc<Kernel>>,
    /// Names of the kernels in the order of the text.
    order: Vec<String>,
    target: u32,
    /// True where values of variables are addresses of variables.
    has_addresses: bool,
}

/// A kernel that can be run.
pub struct Kernel {
    name: String,
    parameters: Vec<Parameter>,
    max_threads: u32,
    /// `.maxnreg`; 0 without.
    max_registers: u32,
    required_block: [u32; 3],
    /// Constant memory of its module in bytes.
    constants: u32,
    /// True where its code holds addresses of variables, so that it has to be translated when they have some.
    has_addresses: bool,
    body: Body,
}

/// What a kernel is made of.
enum Body {
    /// Translated PTX.
    Code(Box<Code>),
    /// Machine code, of which only this is known: static shared memory and registers.
    Opaque { shared: u32, registers: u32 },
    /// PTX with something that is not executed: this kernel cannot be launched, others of its module can.
    Refused(ParseError),
}

// SAFETY: the raw pointers of a `Code` lie in buffers that it owns and that nobody writes after translation.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

impl Module {
    /// Reads and translates one PTX text.
    pub fn from_ptx(text: &str) -> Result<Self, ParseError> {
        Self::link(&[text], |_| Ok(()))
    }

    /// Reads several texts and links them: `.extern` names are resolved among them. `check` is asked about each text
    /// that is PTX, before anything is made of it.
    pub(crate) fn link<E: From<ParseError>>(
        texts: &[&str],
        check: impl Fn(&Source<'_>) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut module = Self {
            texts: texts.iter().map(|text| Arc::from(*text)).collect(),
            variables: Vec::new(),
            images: Vec::new(),
            kernels: HashMap::new(),
            order: Vec::new(),
            target: 0,
            has_addresses: false,
        };
        module.translate(&[], check)?;
        Ok(module)
    }

    /// A module of machine code: its kernels have names and parameters, and do nothing.
    pub fn from_cubin(cubin: Cubin) -> Self {
        let mut module = Self {
            texts: Vec::new(),
            variables: cubin.variables,
            images: cubin.images,
            kernels: HashMap::new(),
            order: Vec::new(),
            target: 0,
            has_addresses: false,
        };
        let constants = constant_bytes(&module.variables);
        for kernel in cubin.kernels {
            module.order.push(kernel.name.clone());
            let kernel = Kernel {
                name: kernel.name,
                parameters: kernel.parameters,
                max_threads: kernel.max_threads,
                max_registers: 0,
                required_block: [0; 3],
                constants,
                has_addresses: false,
                body: Body::Opaque {
                    shared: kernel.shared,
                    registers: kernel.registers,
                },
            };
            module.kernels.insert(kernel.name.clone(), Arc::new(kernel));
        }
        module
    }

    /// Device variables; memory for them must be given to [`Module::place`] before a kernel that uses them runs.
    pub fn variables(&self) -> &[VariableInfo] {
        &self.variables
    }

    /// Tells where the variables are, in the order of [`Module::variables`]. Kernels taken before keep their code.
    pub fn place(&mut self, addresses: &[u64]) -> Result<(), ParseError> {
        let needs = self.has_addresses || self.kernels.values().any(|kernel| kernel.has_addresses);
        match needs && !self.texts.is_empty() {
            true => self.translate(addresses, |_| Ok(())),
            false => Ok(()),
        }
    }

    /// First bytes of variable `index` as its initialiser says; the rest of it is zero.
    pub fn image(&self, index: usize) -> &[u8] {
        &self.images[index]
    }

    /// Architecture that the PTX was written for: 80 for sm_80; 0 for machine code.
    pub fn target(&self) -> u32 {
        self.target
    }

    /// A kernel by name.
    pub fn kernel(&self, name: &str) -> Option<Arc<Kernel>> {
        self.kernels.get(name).cloned()
    }

    /// All kernels in the order of the text.
    pub fn kernels(&self) -> impl ExactSizeIterator<Item = &Arc<Kernel>> {
        self.order.iter().map(|name| &self.kernels[name])
    }

    /// Translates what there is no code of yet, and what holds addresses, which are these now.
    fn translate<E: From<ParseError>>(
        &mut self,
        addresses: &[u64],
        check: impl Fn(&Source<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let texts = self.texts.clone();
        let mut sources = Vec::new();
        for text in &texts {
            let source = parse(text)?;
            check(&source)?;
            sources.push(source);
        }
        let symbols = Symbols::new(&sources, addresses)?;
        self.variables = symbols.variables();
        self.images = (0..self.variables.len())
            .map(|index| symbols.image(index))
            .collect::<Result<_, _>>()?;
        let digits = |source: &Source<'_>| source.target.chars().filter(char::is_ascii_digit).collect::<String>();
        self.target = sources
            .iter()
            .filter_map(|source| digits(source).parse().ok())
            .max()
            .unwrap_or(0);
        self.has_addresses = symbols.has_addresses();
        self.order.clear();
        let constants = constant_bytes(&self.variables);
        for (source, number) in symbols.kernels() {
            let function = symbols.function(source, number);
            self.order.push(function.name.to_owned());
            if self
                .kernels
                .get(function.name)
                .is_some_and(|kernel| !kernel.has_addresses)
            {
                continue;
            }
            let (translated, has_addresses) = translate::kernel(&symbols, source, number);
            let body = match translated {
                Ok(code) => Body::Code(Box::new(code)),
                Err(error) if error.refusal == Refusal::Unsupported => Body::Refused(error),
                Err(error) => return Err(error.into()),
            };
            let kernel = Kernel {
                name: function.name.to_owned(),
                parameters: translate::parameters(function),
                max_threads: function.max_threads,
                max_registers: function.max_registers,
                required_block: function.required_block,
                constants,
                has_addresses,
                body,
            };
            self.kernels.insert(kernel.name.clone(), Arc::new(kernel));
        }
        Ok(())
    }
}

impl Kernel {
    /// Name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Parameters in order.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Bytes of the parameter buffer.
    pub fn parameter_bytes(&self) -> u32 {
        self.parameters.last().map_or(0, |last| last.offset + last.size)
    }

    /// Threads of a block that the text allows; 0 when it says nothing.
    pub fn max_threads(&self) -> u32 {
        self.max_threads
    }

    /// Statically declared shared memory in bytes.
    pub fn shared_bytes(&self) -> u32 {
        match &self.body {
            Body::Code(code) => code.shared,
            Body::Opaque { shared, .. } => *shared,
            Body::Refused(_) => 0,
        }
    }

    /// Local memory of a thread in bytes.
    pub fn local_bytes(&self) -> u32 {
        match &self.body {
            Body::Code(code) => code.local,
            Body::Opaque { .. } | Body::Refused(_) => 0,
        }
    }

    /// Constant memory of the module that it is in, in bytes.
    pub fn constant_bytes(&self) -> u32 {
        self.constants
    }

    /// The most registers of a thread that the text allows; 0 when it says nothing.
    pub fn max_registers(&self) -> u32 {
        self.max_registers
    }

    /// Why it cannot be launched, if it cannot.
    pub fn refusal(&self) -> Option<&ParseError> {
        match &self.body {
            Body::Refused(error) => Some(error),
            _ => None,
        }
    }

    /// Registers of a thread, as 32-bit words. For PTX every virtual register counts.
    pub fn registers(&self) -> u32 {
        match &self.body {
            Body::Code(code) => code.functions.iter().map(|function| function.frame).max().unwrap_or(0) / 128,
            Body::Opaque { registers, .. } => *registers,
            Body::Refused(_) => 0,
        }
    }

    /// True for machine code, which is not executed: a run has no effect.
    pub fn is_opaque(&self) -> bool {
        matches!(self.body, Body::Opaque { .. })
    }

    /// Runs the kernel on up to `threads` operating-system threads, this one included, and returns when it has ended.
    pub fn run(&self, launch: &Launch<'_>, memory: &dyn DeviceMemory, threads: usize) -> Result<Stats, Fault> {
        let fault = |kind, line| Fault {
            kind,
            kernel: self.name.clone(),
            line,
        };
        if let Some(why) = self.misfit(launch) {
            return Err(fault(FaultKind::BadLaunch(why), 0));
        }
        match &self.body {
            Body::Code(code) => grid::run(code, launch, memory, threads).map_err(|(kind, line)| fault(kind, line)),
            Body::Opaque { .. } => Ok(Stats::default()),
            Body::Refused(error) => Err(fault(FaultKind::BadLaunch("it is not supported"), error.line)),
        }
    }

    /// What is wrong with a launch.
    fn misfit(&self, launch: &Launch<'_>) -> Option<&'static str> {
        let threads: u64 = launch.block.iter().map(|size| u64::from(*size)).product();
        if threads == 0 || launch.grid.contains(&0) {
            return Some("a dimension is zero");
        }
        if launch.block.iter().any(|size| u64::from(*size) > MOST_THREADS) || threads > MOST_THREADS {
            return Some("too many threads in a block");
        }
        if launch.grid[1] > 65535 || launch.grid[2] > 65535 || launch.grid[0] > i32::MAX as u32 {
            return Some("too many blocks");
        }
        if self.required_block[0] != 0 && launch.block != self.required_block {
            return Some("the kernel requires another block");
        }
        if self.max_threads != 0 && threads > u64::from(self.max_threads) {
            return Some("the kernel allows fewer threads in a block");
        }
        if launch.parameters.len() < self.parameter_bytes() as usize {
            return Some("parameters are missing");
        }
        if u64::from(self.shared_bytes()) + u64::from(launch.dynamic_shared) > 1 << 20 {
            return Some("too much shared memory");
        }
        None
    }
}

/// The constant variables one behind the other, each at its alignment: the bank that all kernels of a module share.
fn constant_bytes(variables: &[VariableInfo]) -> u32 {
    let constants = variables.iter().filter(|variable| variable.is_constant);
    let end = constants.fold(0u64, |end, variable| {
        end.next_multiple_of(u64::from(variable.align.max(1))) + variable.bytes
    });
    u32::try_from(end).unwrap_or(u32::MAX)
}

impl fmt::Debug for Module {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Module")
            .field("kernels", &self.order)
            .field("variables", &self.variables)
            .finish()
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Kernel")
            .field("name", &self.name)
            .field("parameters", &self.parameters)
            .finish()
    }
}

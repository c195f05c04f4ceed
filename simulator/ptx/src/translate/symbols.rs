// SPDX-License-Identifier: Apache-2.0
//! Module-scope names of one or several sources that are linked together, and the images of variables.

use crate::error::{ParseError, Result};
use crate::execute::spaces::FUNCTION_WINDOW;
use crate::hasher::{Map, Set};
use crate::place::Place;
use crate::syntax::{Function, Initial, Linkage, Operand, Scalar, Source, Space, Statement, Variable};

/// A variable in device memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariableInfo {
    /// Name.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Alignment in bytes.
    pub align: u32,
    /// True in constant memory.
    pub is_constant: bool,
    /// True with `.attribute(.managed)`.
    pub is_managed: bool,
}

/// Address that stands for function `index` of all sources.
pub fn function_address(index: usize) -> u64 {
    FUNCTION_WINDOW + 16 * (index as u64 + 1)
}

/// Device addresses of the variables, in the order of [`Symbols::variables`].
pub type Placed = [u64];

/// Where a module-scope variable is defined.
#[derive(Clone, Copy)]
enum Found<'a, 's> {
    /// Entry of the device variables.
    Device(usize),
    /// A shared variable.
    Shared(&'s Variable<'a>),
}

/// Names of all sources.
pub struct Symbols<'a, 's> {
    sources: &'s [Source<'a>],
    /// Device variables: source and variable.
    variables: Vec<(usize, &'s Variable<'a>)>,
    by_name: Vec<Map<&'a str, Found<'a, 's>>>,
    functions: Vec<Map<&'a str, (usize, usize)>>,
    starts: Vec<usize>,
    placed: &'s Placed,
}

impl<'a, 's> Symbols<'a, 's> {
    /// Resolves names across sources. `placed` may be empty, in which case every variable is at address 0.
    pub fn new(sources: &'s [Source<'a>], placed: &'s Placed) -> Result<Self> {
        let mut symbols = Self {
            sources,
            variables: Vec::new(),
            by_name: vec![Map::default(); sources.len()],
            functions: vec![Map::default(); sources.len()],
            starts: Vec::new(),
            placed,
        };
        let mut total = 0;
        for source in sources {
            symbols.starts.push(total);
            total += source.functions.len();
        }
        symbols.collect_variables()?;
        symbols.collect_functions()?;
        Ok(symbols)
    }

    fn collect_variables(&mut self) -> Result<()> {
        let mut exported: Map<&'a str, Found<'a, 's>> = Map::default();
        for (number, source) in self.sources.iter().enumerate() {
            let inner = body_variables(source)
                .into_iter()
                .filter(|variable| variable.space != Space::Shared);
            for variable in source.variables.iter().chain(inner) {
                let is_shared = variable.space == Space::Shared;
                if variable.linkage == Linkage::Extern && !is_shared {
                    continue;
                }
                let found = if is_shared {
                    Found::Shared(variable)
                } else if matches!(variable.space, Space::Global | Space::Const) {
                    Found::Device(self.variables.len())
                } else {
                    return Err(ParseError::unsupported(
                        variable.place,
                        "a module variable of this space",
                    ));
                };
                if matches!(variable.linkage, Linkage::Visible | Linkage::Weak) {
                    match exported.get(variable.name) {
                        None => {
                            exported.insert(variable.name, found);
                        }
                        Some(first) if variable.linkage == Linkage::Weak => {
                            self.by_name[number].insert(variable.name, *first);
                            continue;
                        }
                        Some(_) if self.by_name[number].contains_key(variable.name) => {}
                        Some(_) => {
                            let reason = format!("{} is defined twice", variable.name);
                            return Err(ParseError::syntax(variable.place, reason));
                        }
                    }
                }
                if matches!(found, Found::Device(_)) {
                    self.variables.push((number, variable));
                }
                self.by_name[number].insert(variable.name, found);
            }
        }
        for (number, source) in self.sources.iter().enumerate() {
            for variable in source
                .variables
                .iter()
                .filter(|variable| variable.linkage == Linkage::Extern)
            {
                if let Some(found) = exported.get(variable.name) {
                    self.by_name[number].insert(variable.name, *found);
                }
            }
        }
        Ok(())
    }

    fn collect_functions(&mut self) -> Result<()> {
        let mut exported: Map<&'a str, (usize, usize)> = Map::default();
        for (number, source) in self.sources.iter().enumerate() {
            for (at, function) in source
                .functions
                .iter()
                .enumerate()
                .filter(|(_, function)| function.body.is_some())
            {
                self.functions[number].insert(function.name, (number, at));
                if function.linkage == Linkage::Internal {
                    continue;
                }
                if exported.contains_key(function.name) && function.linkage == Linkage::Visible {
                    let reason = format!("{} is defined twice", function.name);
                    return Err(ParseError::syntax(function.place, reason));
                }
                exported.entry(function.name).or_insert((number, at));
            }
        }
        for (number, source) in self.sources.iter().enumerate() {
            for function in source.functions.iter().filter(|function| function.body.is_none()) {
                if let Some(found) = exported.get(function.name) {
                    self.functions[number].entry(function.name).or_insert(*found);
                }
            }
        }
        Ok(())
    }

    /// Device variables in order.
    pub fn variables(&self) -> Vec<VariableInfo> {
        self.variables
            .iter()
            .map(|(_, variable)| VariableInfo {
                name: variable.name.to_owned(),
                bytes: variable.bytes().unwrap_or(0),
                align: variable.align.max(1),
                is_constant: variable.space == Space::Const,
                is_managed: variable.managed,
            })
            .collect()
    }

    /// True when an initialiser holds addresses.
    pub fn has_addresses(&self) -> bool {
        let mut names = Set::default();
        for value in self.variables.iter().flat_map(|(_, variable)| &variable.initial) {
            initial_names(value, &mut names);
        }
        !names.is_empty()
    }

    /// Kernels with a body: source and number.
    pub fn kernels(&self) -> Vec<(usize, usize)> {
        let mut kernels = Vec::new();
        for (number, source) in self.sources.iter().enumerate() {
            for (at, function) in source.functions.iter().enumerate() {
                if function.is_entry && function.body.is_some() && self.functions[number][function.name] == (number, at)
                {
                    kernels.push((number, at));
                }
            }
        }
        kernels
    }

    /// A function.
    pub fn function(&self, source: usize, number: usize) -> &'s Function<'a> {
        &self.sources[source].functions[number]
    }

    /// A function's number among all sources.
    pub fn number(&self, source: usize, number: usize) -> usize {
        self.starts[source] + number
    }

    /// The function a name stands for in a source.
    pub fn find_function(&self, source: usize, name: &str) -> Option<(usize, usize)> {
        self.functions[source].get(name).copied()
    }

    /// The device address of a module-scope variable, or the shared variable it is.
    pub fn find_variable(&self, source: usize, name: &str) -> Option<std::result::Result<u64, &'s Variable<'a>>> {
        match self.by_name[source].get(name)? {
            Found::Device(index) => Some(Ok(self.placed.get(*index).copied().unwrap_or(0))),
            Found::Shared(variable) => Some(Err(variable)),
        }
    }

    /// The address of a global variable declared inside a body.
    pub fn local_variable(&self, source: usize, name: &str, place: Place) -> Result<u64> {
        match self.find_variable(source, name) {
            Some(Ok(address)) => Ok(address),
            _ => Err(ParseError::unresolved(place, name)),
        }
    }

    /// Shared variables that a kernel can reach through calls.
    pub fn reachable_shared(&self, kernel: (usize, usize)) -> Vec<&'s Variable<'a>> {
        let (mut seen, mut waiting, mut found) = (Set::from_iter([kernel]), vec![kernel], Vec::new());
        let mut named: Set<*const Variable<'a>> = Set::default();
        while let Some((source, number)) = waiting.pop() {
            let body = self.function(source, number).body.as_deref().unwrap_or(&[]);
            let (mut used, mut indirect) = (Set::default(), false);
            names_of(body, &mut used, &mut indirect);
            let reached = if indirect { self.taken() } else { Set::default() };
            let called = used.iter().filter_map(|name| self.find_function(source, name));
            for callee in called.chain(reached) {
                if seen.insert(callee) {
                    waiting.push(callee);
                }
            }
            let mut inner = Vec::new();
            collect(body, &mut inner);
            found.extend(inner.into_iter().filter(|variable| variable.space == Space::Shared));
            for name in used {
                if let Some(Found::Shared(variable)) = self.by_name[source].get(name) {
                    named.insert(*variable);
                }
            }
        }
        // Sets have no order; the sources do.
        let all = self.sources.iter().flat_map(|source| &source.variables);
        found.extend(all.filter(|variable| named.contains(&std::ptr::from_ref(*variable))));
        found
    }

    /// Functions whose address is used somewhere other than in a direct call.
    pub fn taken(&self) -> Set<(usize, usize)> {
        let mut taken = Set::default();
        for (number, source) in self.sources.iter().enumerate() {
            let mut names = Set::default();
            for variable in &source.variables {
                variable
                    .initial
                    .iter()
                    .for_each(|value| initial_names(value, &mut names));
            }
            for function in &source.functions {
                names_of(function.body.as_deref().unwrap_or(&[]), &mut names, &mut false);
            }
            let functions = names.iter().filter_map(|name| self.find_function(number, name));
            taken.extend(functions.filter(|(source, at)| !self.function(*source, *at).is_entry));
        }
        taken
    }

    /// The first bytes of device variable `index`: its initialiser with addresses filled in, then zeros.
    pub fn image(&self, index: usize) -> Result<Vec<u8>> {
        let (source, variable) = self.variables[index];
        let mut bytes = Vec::new();
        let shape = Shape {
            scalar: variable.scalar,
            sizes: &variable.dimensions,
            vector: variable.vector,
        };
        for value in &variable.initial {
            self.write_initial(source, variable, value, &shape.inner(), &mut bytes)?;
        }
        if bytes.len() as u64 > variable.bytes().unwrap_or(0) {
            return Err(ParseError::syntax(
                variable.place,
                format!("too many values for {}", variable.name),
            ));
        }
        Ok(bytes)
    }

    fn write_initial(
        &self,
        source: usize,
        variable: &Variable<'a>,
        value: &Initial<'a>,
        shape: &Shape<'_>,
        bytes: &mut Vec<u8>,
    ) -> Result<()> {
        let size = variable.scalar.bytes() as usize;
        let word = match value {
            Initial::List(values) => {
                let end = bytes.len() as u64 + shape.bytes();
                for value in values {
                    self.write_initial(source, variable, value, &shape.inner(), bytes)?;
                }
                if (bytes.len() as u64) < end && end <= variable.bytes().unwrap_or(0) {
                    bytes.resize(end as usize, 0);
                }
                return Ok(());
            }
            Initial::Integer(value) => *value,
            Initial::Single(bits) if variable.scalar == Scalar::F64 => f64::from(f32::from_bits(*bits)).to_bits(),
            Initial::Single(bits) => u64::from(*bits),
            Initial::Double(bits) if variable.scalar == Scalar::F32 => {
                u64::from((f64::from_bits(*bits) as f32).to_bits())
            }
            Initial::Double(bits) => *bits,
            Initial::Symbol(name, offset, _) => {
                let address = match (self.find_variable(source, name), self.find_function(source, name)) {
                    (Some(Ok(address)), _) => address,
                    (_, Some((owner, number))) => function_address(self.number(owner, number)),
                    _ => return Err(ParseError::unresolved(variable.place, name)),
                };
                address.wrapping_add(*offset as u64)
            }
        };
        bytes.extend_from_slice(&word.to_le_bytes()[..size.min(8)]);
        if size > 8 {
            bytes.extend_from_slice(&[0; 8]);
        }
        Ok(())
    }
}

/// What is left of an array's dimensions inside an initialiser.
struct Shape<'d> {
    scalar: Scalar,
    sizes: &'d [u64],
    vector: u32,
}

impl Shape<'_> {
    fn inner(&self) -> Shape<'_> {
        let sizes = if self.sizes.is_empty() { &[] } else { &self.sizes[1..] };
        Shape {
            scalar: self.scalar,
            sizes,
            vector: self.vector,
        }
    }

    fn bytes(&self) -> u64 {
        let element = u64::from(self.scalar.bytes() * self.vector);
        self.sizes
            .iter()
            .fold(element, |bytes, size| bytes.saturating_mul(*size))
    }
}

/// Global, constant and shared variables declared inside bodies.
fn body_variables<'a, 's>(source: &'s Source<'a>) -> Vec<&'s Variable<'a>> {
    let mut found = Vec::new();
    for function in &source.functions {
        collect(function.body.as_deref().unwrap_or(&[]), &mut found);
    }
    found
}

fn collect<'a, 's>(statements: &'s [Statement<'a>], found: &mut Vec<&'s Variable<'a>>) {
    for statement in statements {
        match statement {
            Statement::Block(inner) => collect(inner, found),
            Statement::Variable(variable) if matches!(variable.space, Space::Global | Space::Const | Space::Shared) => {
                found.push(variable);
            }
            _ => {}
        }
    }
}

fn initial_names<'a>(value: &Initial<'a>, names: &mut Set<&'a str>) {
    match value {
        Initial::Symbol(name, ..) => {
            names.insert(name);
        }
        Initial::List(values) => values.iter().for_each(|value| initial_names(value, names)),
        _ => {}
    }
}

/// Names used in a body; `indirect` becomes true where a function is called through a register.
fn names_of<'a>(statements: &[Statement<'a>], names: &mut Set<&'a str>, indirect: &mut bool) {
    for statement in statements {
        match statement {
            Statement::Block(inner) => names_of(inner, names, indirect),
            Statement::Instruction(instruction) => {
                *indirect |= instruction.opcode == "call"
                    && instruction
                        .operands
                        .iter()
                        .any(|operand| matches!(operand, Operand::Name(name) if name.starts_with('%')));
                instruction
                    .operands
                    .iter()
                    .for_each(|operand| names_of_operand(operand, names));
            }
            _ => {}
        }
    }
}

fn names_of_operand<'a>(operand: &Operand<'a>, names: &mut Set<&'a str>) {
    match operand {
        Operand::Name(name) | Operand::Offset(name, _) | Operand::Address(Some(name), _) => {
            names.insert(name);
        }
        Operand::Vector(inner) | Operand::List(inner) => inner.iter().for_each(|inner| names_of_operand(inner, names)),
        _ => {}
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Reads PTX text into a [`Source`]; recursive descent, one token of look-ahead.
//!
//! Debug sections, `.file`, `.loc` and `.pragma` are skipped. Every error names line and column.

mod expression;

use crate::error::ParseError;
use crate::lexer::{Place, Token, tokens};
use crate::syntax::*;

type Result<T> = std::result::Result<T, ParseError>;

/// Nesting of blocks and initialisers beyond which text is refused: real modules nest two or three deep, and the
/// parser must not overflow its own stack on garbage.
const DEEPEST: u32 = 64;

/// Reads a whole module.
pub fn parse(text: &str) -> Result<Source<'_>> {
    let mut parser = Parser {
        tokens: tokens(text)?,
        at: 0,
        depth: 0,
    };
    parser.module()
}

struct Parser<'a> {
    tokens: Vec<(Token<'a>, Place)>,
    at: usize,
    depth: u32,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens[self.at].0
    }

    fn ahead(&self) -> Token<'a> {
        self.tokens.get(self.at + 1).map_or(Token::End, |token| token.0)
    }

    fn place(&self) -> Place {
        self.tokens[self.at].1
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        if token != Token::End {
            self.at += 1;
        }
        token
    }

    fn wrong<T>(&self, wanted: &str) -> Result<T> {
        let found = match self.peek() {
            Token::Word(word) => word.to_owned(),
            Token::Dot(word) => format!(".{word}"),
            Token::Integer(value, _) => value.to_string(),
            Token::Mark(byte) => (byte as char).to_string(),
            Token::Text(text) => format!("\"{text}\""),
            Token::Single(_) | Token::Double(_) => "a number".to_owned(),
            Token::End => "the end of the text".to_owned(),
        };
        Err(ParseError::syntax(
            self.place(),
            format!("expected {wanted}, found {found}"),
        ))
    }

    fn is_mark(&self, mark: u8) -> bool {
        self.peek() == Token::Mark(mark)
    }

    fn accept(&mut self, mark: u8) -> bool {
        let found = self.is_mark(mark);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, mark: u8) -> Result<()> {
        if self.accept(mark) {
            Ok(())
        } else {
            self.wrong(&format!("'{}'", mark as char))
        }
    }

    fn word(&mut self) -> Result<&'a str> {
        match self.peek() {
            Token::Word(word) => {
                self.at += 1;
                Ok(word)
            }
            _ => self.wrong("a name"),
        }
    }

    fn deeper(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(ParseError::syntax(self.place(), "nested too deep"));
        }
        Ok(())
    }

    fn module(&mut self) -> Result<Source<'a>> {
        let mut source = Source::default();
        let mut versioned = false;
        loop {
            match self.peek() {
                Token::End => break,
                Token::Dot("version") => {
                    self.at += 1;
                    source.version = self.version()?;
                    versioned = true;
                }
                Token::Dot("target") => {
                    self.at += 1;
                    source.target = self.word()?;
                    while self.accept(b',') {
                        self.word()?;
                    }
                }
                Token::Dot("address_size") => {
                    self.at += 1;
                    match self.next() {
                        Token::Integer(64, _) => {}
                        _ => return Err(ParseError::unsupported(self.place(), "an address size other than 64")),
                    }
                }
                Token::Dot("file" | "section" | "pragma" | "loc" | "alias") => self.skip_directive()?,
                Token::Mark(b'@') if matches!(self.ahead(), Token::Dot(_) | Token::Word(_)) => self.skip_directive()?,
                Token::Mark(b';') => self.at += 1,
                Token::Dot(_) if versioned => self.declaration(&mut source)?,
                _ if !versioned => return self.wrong(".version"),
                _ => return self.wrong("a directive"),
            }
        }
        if versioned { Ok(source) } else { self.wrong(".version") }
    }

    fn version(&mut self) -> Result<(u32, u32)> {
        let place = self.place();
        match (self.next(), self.peek()) {
            (Token::Integer(major, _), Token::Dot(minor)) => {
                self.at += 1;
                let minor = minor.parse().map_err(|_| ParseError::syntax(place, "not a version"))?;
                Ok((major as u32, minor))
            }
            (Token::Double(bits), _) => {
                let tenths = (f64::from_bits(bits) * 10.0).round();
                Ok(((tenths / 10.0) as u32, (tenths % 10.0) as u32))
            }
            _ => Err(ParseError::syntax(place, "expected a version such as 8.0")),
        }
    }

    /// Skips a directive that runs to a semicolon, a closed brace or the end of its line.
    fn skip_directive(&mut self) -> Result<()> {
        let line = self.place().line;
        let braced = self.peek() == Token::Dot("section");
        self.at += 1;
        if braced {
            while !matches!(self.peek(), Token::Mark(b'{') | Token::End) {
                self.at += 1;
            }
            while !matches!(self.peek(), Token::Mark(b'}') | Token::End) {
                self.at += 1;
            }
            return self.expect(b'}');
        }
        while self.place().line == line && self.peek() != Token::End {
            if self.next() == Token::Mark(b';') {
                break;
            }
        }
        Ok(())
    }

    fn declaration(&mut self, source: &mut Source<'a>) -> Result<()> {
        let place = self.place();
        let mut linkage = Linkage::Internal;
        loop {
            match self.peek() {
                Token::Dot("visible") => linkage = Linkage::Visible,
                Token::Dot("extern") => linkage = Linkage::Extern,
                Token::Dot("weak" | "common") => linkage = Linkage::Weak,
                Token::Dot("entry") => {
                    self.at += 1;
                    let function = self.function(true, linkage, place)?;
                    source.functions.push(function);
                    return Ok(());
                }
                Token::Dot("func") => {
                    self.at += 1;
                    let function = self.function(false, linkage, place)?;
                    source.functions.push(function);
                    return Ok(());
                }
                Token::Dot(_) => return self.variables(linkage, &mut source.variables),
                _ => return self.wrong("a declaration"),
            }
            self.at += 1;
        }
    }

    fn function(&mut self, is_entry: bool, linkage: Linkage, place: Place) -> Result<Function<'a>> {
        let mut returns = Vec::new();
        if self.peek() == Token::Dot("attribute") {
            self.at += 1;
            self.parenthesised()?;
        }
        if !is_entry && self.is_mark(b'(') {
            returns = self.formals()?;
        }
        let name = self.word()?;
        let parameters = if self.is_mark(b'(') {
            self.formals()?
        } else {
            Vec::new()
        };
        let mut function = Function {
            name,
            is_entry,
            linkage,
            returns,
            parameters,
            max_threads: 0,
            max_registers: 0,
            required_block: [0; 3],
            body: None,
            place,
        };
        self.tuning(&mut function)?;
        if self.is_mark(b'{') {
            self.at += 1;
            function.body = Some(self.statements()?);
        } else {
            self.accept(b';');
        }
        Ok(function)
    }

    /// Performance directives between the parameters and the body.
    fn tuning(&mut self, function: &mut Function<'a>) -> Result<()> {
        while let Token::Dot(directive) = self.peek() {
            let is_block = matches!(directive, "maxntid" | "reqntid");
            if !(is_block
                || matches!(
                    directive,
                    "minnctapersm"
                        | "maxnctapersm"
                        | "maxnreg"
                        | "noreturn"
                        | "pragma"
                        | "abi_preserve"
                        | "abi_preserve_control"
                        | "explicitcluster"
                        | "reqnctapercluster"
                        | "maxclusterrank"
                        | "unified"
                        | "blocksareclusters"
                ))
            {
                break;
            }
            self.at += 1;
            let mut values = Vec::new();
            while let Token::Integer(value, _) = self.peek() {
                self.at += 1;
                values.push(value.min(u64::from(u32::MAX)) as u32);
                self.accept(b',');
            }
            while matches!(self.peek(), Token::Text(_)) || (directive == "pragma" && self.is_mark(b';')) {
                self.at += 1;
            }
            if directive == "maxnreg" {
                function.max_registers = values.first().copied().unwrap_or(0);
            }
            if is_block {
                values.resize(3, 1);
                function.max_threads = values
                    .iter()
                    .fold(1u32, |product, value| product.saturating_mul(*value));
                if directive == "reqntid" {
                    function.required_block = [values[0], values[1], values[2]];
                }
            }
        }
        Ok(())
    }

    fn parenthesised(&mut self) -> Result<()> {
        self.expect(b'(')?;
        while !matches!(self.peek(), Token::Mark(b')') | Token::End) {
            self.at += 1;
        }
        self.expect(b')')
    }

    fn formals(&mut self) -> Result<Vec<Formal<'a>>> {
        self.expect(b'(')?;
        let mut formals = Vec::new();
        while !self.accept(b')') {
            let is_register = match self.peek() {
                Token::Dot("param") => false,
                Token::Dot("reg") => true,
                _ => return self.wrong(".param"),
            };
            self.at += 1;
            let space = if is_register { Space::Generic } else { Space::Param };
            let variable = self.variable(space, Linkage::Internal, true)?;
            formals.push(Formal { variable, is_register });
            if !self.accept(b',') && !self.is_mark(b')') {
                return self.wrong("',' or ')'");
            }
        }
        Ok(formals)
    }

    fn variables(&mut self, linkage: Linkage, into: &mut Vec<Variable<'a>>) -> Result<()> {
        let space = match self.peek() {
            Token::Dot(word) => match Space::from_word(word) {
                Some(space) => space,
                None if matches!(word, "tex" | "surfref" | "texref" | "samplerref") => {
                    return Err(ParseError::unsupported(self.place(), "a texture or surface reference"));
                }
                None => return self.wrong("a state space"),
            },
            _ => return self.wrong("a state space"),
        };
        self.at += 1;
        let first = self.variable(space, linkage, false)?;
        let (scalar, vector, align, managed) = (first.scalar, first.vector, first.align, first.managed);
        into.push(first);
        while self.accept(b',') {
            let place = self.place();
            let name = self.word()?;
            let (dimensions, initial) = (self.dimensions()?, self.initial()?);
            into.push(Variable {
                name,
                space,
                linkage,
                align,
                scalar,
                dimensions,
                vector,
                initial,
                managed,
                place,
            });
        }
        self.expect(b';')
    }

    fn variable(&mut self, space: Space, linkage: Linkage, is_formal: bool) -> Result<Variable<'a>> {
        let place = self.place();
        let (mut align, mut vector, mut scalar, mut managed) = (0u32, 1u32, None, false);
        while let Token::Dot(word) = self.peek() {
            self.at += 1;
            match word {
                "align" => match self.next() {
                    Token::Integer(value, _) if value.is_power_of_two() && value <= 1 << 20 => align = value as u32,
                    _ => return Err(ParseError::syntax(place, "alignment is not a power of two")),
                },
                "v2" => vector = 2,
                "v4" => vector = 4,
                "attribute" => {
                    managed |= self.ahead() == Token::Dot("managed");
                    self.parenthesised()?;
                }
                // `.param .u64 .ptr .global .align 8 name`: a hint about what the pointer points to.
                "ptr" => {
                    while let Token::Dot(hint) = self.peek() {
                        self.at += 1;
                        if hint == "align" {
                            self.next();
                        }
                    }
                }
                _ => match Scalar::from_word(word) {
                    Some(found) => scalar = Some(found),
                    None if matches!(word, "texref" | "samplerref" | "surfref") => {
                        return Err(ParseError::unsupported(place, "a texture or surface reference"));
                    }
                    None => return Err(ParseError::syntax(place, format!(".{word} is not a type"))),
                },
            }
        }
        let Some(scalar) = scalar else {
            return self.wrong("a type");
        };
        if align == 0 {
            align = scalar.bytes() * vector;
        }
        let name = if is_formal && !matches!(self.peek(), Token::Word(_)) {
            "_"
        } else {
            self.word()?
        };
        let dimensions = self.dimensions()?;
        let initial = if is_formal { Vec::new() } else { self.initial()? };
        let variable = Variable {
            name,
            space,
            linkage,
            align,
            scalar,
            dimensions,
            vector,
            initial,
            managed,
            place,
        };
        if variable.bytes().is_none() {
            return Err(ParseError::syntax(place, format!("{name} is too large")));
        }
        Ok(variable)
    }

    fn dimensions(&mut self) -> Result<Vec<u64>> {
        let mut dimensions = Vec::new();
        while self.accept(b'[') {
            let size = if self.is_mark(b']') { 0 } else { self.constant(0)? };
            self.expect(b']')?;
            dimensions.push(size);
        }
        Ok(dimensions)
    }

    fn initial(&mut self) -> Result<Vec<Initial<'a>>> {
        if !self.accept(b'=') {
            return Ok(Vec::new());
        }
        if self.is_mark(b'{') {
            match self.initial_value()? {
                Initial::List(values) => return Ok(values),
                value => return Ok(vec![value]),
            }
        }
        Ok(vec![self.initial_value()?])
    }

    fn initial_value(&mut self) -> Result<Initial<'a>> {
        match self.peek() {
            Token::Mark(b'{') => {
                self.deeper()?;
                self.at += 1;
                let mut values = Vec::new();
                while !self.accept(b'}') {
                    values.push(self.initial_value()?);
                    if !self.accept(b',') && !self.is_mark(b'}') {
                        return self.wrong("',' or '}'");
                    }
                }
                self.depth -= 1;
                Ok(Initial::List(values))
            }
            Token::Single(bits) => {
                self.at += 1;
                Ok(Initial::Single(bits))
            }
            Token::Double(bits) => {
                self.at += 1;
                Ok(Initial::Double(bits))
            }
            Token::Mark(b'-') if matches!(self.ahead(), Token::Double(_)) => {
                self.at += 1;
                match self.next() {
                    Token::Double(bits) => Ok(Initial::Double(bits ^ (1 << 63))),
                    _ => self.wrong("a number"),
                }
            }
            Token::Word(name) => {
                self.at += 1;
                let generic = name == "generic" && self.accept(b'(');
                let name = if generic { self.word()? } else { name };
                if generic {
                    self.expect(b')')?;
                }
                let mut offset = 0i64;
                while self.is_mark(b'+') || self.is_mark(b'-') {
                    let negative = self.next() == Token::Mark(b'-');
                    let value = self.primary(0)? as i64;
                    offset = if negative {
                        offset.wrapping_sub(value)
                    } else {
                        offset.wrapping_add(value)
                    };
                }
                Ok(Initial::Symbol(name, offset, generic))
            }
            _ => Ok(Initial::Integer(self.constant(0)?)),
        }
    }

    fn statements(&mut self) -> Result<Vec<Statement<'a>>> {
        self.deeper()?;
        let mut statements = Vec::new();
        while !self.accept(b'}') {
            let place = self.place();
            match self.peek() {
                Token::End => return self.wrong("'}'"),
                Token::Mark(b';') => self.at += 1,
                Token::Mark(b'{') => {
                    self.at += 1;
                    statements.push(Statement::Block(self.statements()?));
                }
                Token::Dot("reg") => {
                    self.at += 1;
                    statements.push(self.registers()?);
                }
                Token::Dot("loc" | "file" | "pragma") => self.skip_directive()?,
                Token::Dot("branchtargets" | "calltargets" | "callprototype") => {
                    return self.wrong("a label before it");
                }
                Token::Dot(_) => {
                    let mut found = Vec::new();
                    let linkage = match self.peek() {
                        Token::Dot("extern") => Linkage::Extern,
                        Token::Dot("visible") => Linkage::Visible,
                        Token::Dot("weak" | "common") => Linkage::Weak,
                        _ => Linkage::Internal,
                    };
                    self.at += usize::from(linkage != Linkage::Internal);
                    self.variables(linkage, &mut found)?;
                    statements.extend(found.into_iter().map(Statement::Variable));
                }
                Token::Word(label) if self.ahead() == Token::Mark(b':') => {
                    self.at += 2;
                    statements.push(self.labelled(label, place)?);
                }
                _ => statements.push(Statement::Instruction(self.instruction()?)),
            }
        }
        self.depth -= 1;
        Ok(statements)
    }

    fn labelled(&mut self, label: &'a str, place: Place) -> Result<Statement<'a>> {
        match self.peek() {
            Token::Dot("branchtargets" | "calltargets") => {
                self.at += 1;
                let mut targets = vec![self.word()?];
                while self.accept(b',') {
                    targets.push(self.word()?);
                }
                self.expect(b';')?;
                Ok(Statement::BranchTargets(label, targets))
            }
            Token::Dot("callprototype") => {
                self.at += 1;
                // The called function says the same, and no mistake of a caller can reach beyond its own lanes.
                while !self.is_mark(b';') && self.peek() != Token::End {
                    self.at += 1;
                }
                self.expect(b';')?;
                Ok(Statement::Prototype(label))
            }
            _ => Ok(Statement::Label(label, place)),
        }
    }

    fn registers(&mut self) -> Result<Statement<'a>> {
        let (mut scalar, mut vector) = (None, 1);
        while let Token::Dot(word) = self.peek() {
            match word {
                "v2" => vector = 2,
                "v4" => vector = 4,
                _ => match Scalar::from_word(word) {
                    Some(found) => scalar = Some(found),
                    None => return self.wrong("a register type"),
                },
            }
            self.at += 1;
        }
        let Some(scalar) = scalar else {
            return self.wrong("a register type");
        };
        let mut names = Vec::new();
        loop {
            let name = self.word()?;
            let mut count = None;
            if self.accept(b'<') {
                match self.next() {
                    Token::Integer(value, _) if value <= 1 << 20 => count = Some(value as u32),
                    _ => return Err(ParseError::syntax(self.place(), "not a register count")),
                }
                self.expect(b'>')?;
            }
            names.push((name, count));
            if !self.accept(b',') {
                break;
            }
        }
        self.expect(b';')?;
        Ok(Statement::Registers(scalar, vector, names))
    }

    fn instruction(&mut self) -> Result<Instruction<'a>> {
        let place = self.place();
        let mut guard = None;
        if self.accept(b'@') {
            let negated = self.accept(b'!');
            guard = Some((self.word()?, negated));
        }
        let opcode = match self.peek() {
            Token::Word(word) => word,
            _ => return self.wrong("an instruction"),
        };
        self.at += 1;
        let mut modifiers = Vec::new();
        while let Token::Dot(word) = self.peek() {
            self.at += 1;
            modifiers.push(word);
        }
        let mut operands = Vec::new();
        while !self.accept(b';') {
            operands.push(self.operand()?);
            if !self.accept(b',') && !self.is_mark(b';') {
                return self.wrong("',' or ';'");
            }
        }
        Ok(Instruction {
            guard,
            opcode,
            modifiers,
            operands,
            place,
        })
    }
}

/// Refuses text that is not PTX. Names need not be declared: they may be in another text that is linked to this one.
pub fn check_syntax(text: &str) -> Result<()> {
    parse(text).map(|_| ())
}

// SPDX-License-Identifier: Apache-2.0
//! Functions and variables: what a module declares.

use super::Parser;
use crate::error::{ParseError, Result};
use crate::lexer::Token;
use crate::place::Place;
use crate::syntax::*;

impl<'a> Parser<'a> {
    pub(super) fn declaration(&mut self, source: &mut Source<'a>) -> Result<()> {
        let place = self.place();
        let mut linkage = Linkage::Internal;
        loop {
            match self.peek() {
                Token::Dot("visible") => linkage = Linkage::Visible,
                Token::Dot("extern") => linkage = Linkage::Extern,
                Token::Dot("weak" | "common") => linkage = Linkage::Weak,
                Token::Dot("entry") => {
                    self.tokens.step(1);
                    let function = self.function(true, linkage, place)?;
                    source.functions.push(function);
                    return Ok(());
                }
                Token::Dot("func") => {
                    self.tokens.step(1);
                    let function = self.function(false, linkage, place)?;
                    source.functions.push(function);
                    return Ok(());
                }
                Token::Dot(_) => return self.variables(linkage, &mut source.variables),
                _ => return self.wrong("a declaration"),
            }
            self.tokens.step(1);
        }
    }

    fn function(&mut self, is_entry: bool, linkage: Linkage, place: Place) -> Result<Function<'a>> {
        let mut returns = Vec::new();
        if self.peek() == Token::Dot("attribute") {
            self.tokens.step(1);
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
            self.tokens.step(1);
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
            self.tokens.step(1);
            let mut values = Vec::new();
            while let Token::Integer(value, _) = self.peek() {
                self.tokens.step(1);
                values.push(value.min(u64::from(u32::MAX)) as u32);
                self.accept(b',');
            }
            while matches!(self.peek(), Token::Text(_)) || (directive == "pragma" && self.is_mark(b';')) {
                self.tokens.step(1);
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
            self.tokens.step(1);
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
            self.tokens.step(1);
            let space = if is_register { Space::Generic } else { Space::Param };
            let variable = self.variable(space, Linkage::Internal, true)?;
            formals.push(Formal { variable, is_register });
            if !self.accept(b',') && !self.is_mark(b')') {
                return self.wrong("',' or ')'");
            }
        }
        Ok(formals)
    }

    pub(super) fn variables(&mut self, linkage: Linkage, into: &mut Vec<Variable<'a>>) -> Result<()> {
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
        self.tokens.step(1);
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
            self.tokens.step(1);
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
                        self.tokens.step(1);
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
                self.tokens.step(1);
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
                self.tokens.step(1);
                Ok(Initial::Single(bits))
            }
            Token::Double(bits) => {
                self.tokens.step(1);
                Ok(Initial::Double(bits))
            }
            Token::Mark(b'-') if matches!(self.ahead(), Token::Double(_)) => {
                self.tokens.step(1);
                match self.next() {
                    Token::Double(bits) => Ok(Initial::Double(bits ^ (1 << 63))),
                    _ => self.wrong("a number"),
                }
            }
            Token::Word(name) => {
                self.tokens.step(1);
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
}

// SPDX-License-Identifier: Apache-2.0
//! Bodies of functions: labels, registers, instructions.

use super::Parser;
use crate::error::{ParseError, Result};
use crate::lexer::Token;
use crate::place::Place;
use crate::syntax::*;

impl<'a> Parser<'a> {
    pub(super) fn statements(&mut self) -> Result<Vec<Statement<'a>>> {
        self.deeper()?;
        let mut statements = Vec::new();
        while !self.accept(b'}') {
            let place = self.place();
            match self.peek() {
                Token::End => return self.wrong("'}'"),
                Token::Mark(b';') => self.tokens.step(1),
                Token::Mark(b'{') => {
                    self.tokens.step(1);
                    statements.push(Statement::Block(self.statements()?));
                }
                Token::Dot("reg") => {
                    self.tokens.step(1);
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
                    self.tokens.step(usize::from(linkage != Linkage::Internal));
                    self.variables(linkage, &mut found)?;
                    statements.extend(found.into_iter().map(Statement::Variable));
                }
                Token::Word(label) if self.ahead() == Token::Mark(b':') => {
                    self.tokens.step(2);
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
                self.tokens.step(1);
                let mut targets = vec![self.word()?];
                while self.accept(b',') {
                    targets.push(self.word()?);
                }
                self.expect(b';')?;
                Ok(Statement::BranchTargets(label, targets))
            }
            Token::Dot("callprototype") => {
                self.tokens.step(1);
                // The called function says the same, and no mistake of a caller can reach beyond its own lanes.
                while !self.is_mark(b';') && self.peek() != Token::End {
                    self.tokens.step(1);
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
            self.tokens.step(1);
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
        self.tokens.step(1);
        let mut modifiers = Vec::new();
        while let Token::Dot(word) = self.peek() {
            self.tokens.step(1);
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

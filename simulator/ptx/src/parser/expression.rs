// SPDX-License-Identifier: Apache-2.0
//! Operands of instructions and constant expressions.

use super::{DEEPEST, Parser};
use crate::error::{ParseError, Result};
use crate::lexer::Token;
use crate::syntax::Operand;

impl<'a> Parser<'a> {
    pub(super) fn operand(&mut self) -> Result<Operand<'a>> {
        match self.peek() {
            Token::Word("WARP_SZ") => Ok(Operand::Integer(self.constant(0)?)),
            Token::Word(name) => {
                self.tokens.step(1);
                self.named(name)
            }
            Token::Mark(b'!') if matches!(self.ahead(), Token::Word(_)) => {
                self.tokens.step(1);
                Ok(Operand::Not(self.word()?))
            }
            Token::Mark(b'{') => Ok(Operand::Vector(self.operands(b'{', b'}')?)),
            Token::Mark(b'(') if self.is_call_list() => Ok(Operand::List(self.operands(b'(', b')')?)),
            Token::Mark(b'[') => self.address(),
            Token::Single(bits) => {
                self.tokens.step(1);
                Ok(Operand::Single(bits))
            }
            Token::Double(bits) => {
                self.tokens.step(1);
                Ok(Operand::Double(bits))
            }
            Token::Mark(b'-') if matches!(self.ahead(), Token::Double(_) | Token::Single(_)) => {
                self.tokens.step(1);
                match self.next() {
                    Token::Double(bits) => Ok(Operand::Double(bits ^ (1 << 63))),
                    Token::Single(bits) => Ok(Operand::Single(bits ^ (1 << 31))),
                    _ => self.wrong("a number"),
                }
            }
            _ => Ok(Operand::Integer(self.constant(0)?)),
        }
    }

    /// A parenthesis opens a call's list, except where it opens a constant expression such as `(1+2)*4`.
    fn is_call_list(&self) -> bool {
        !matches!(self.ahead(), Token::Integer(..) | Token::Mark(b'-' | b'~' | b'('))
            || self.tokens.back().take(4).any(|token| token == Token::Word("call"))
    }

    fn named(&mut self, name: &'a str) -> Result<Operand<'a>> {
        match self.peek() {
            Token::Dot(component) => {
                self.tokens.step(1);
                Ok(Operand::Component(name, component))
            }
            Token::Mark(b'|') => {
                self.tokens.step(1);
                Ok(Operand::Pair(name, self.word()?))
            }
            Token::Mark(b'+' | b'-') => {
                let negative = self.next() == Token::Mark(b'-');
                let value = self.primary(0)? as i64;
                Ok(Operand::Offset(
                    name,
                    if negative { value.wrapping_neg() } else { value },
                ))
            }
            Token::Mark(b'[') => {
                self.tokens.step(1);
                let offset = self.constant(0)? as i64;
                self.expect(b']')?;
                Ok(Operand::Offset(name, offset))
            }
            _ => Ok(Operand::Name(name)),
        }
    }

    fn operands(&mut self, open: u8, close: u8) -> Result<Vec<Operand<'a>>> {
        self.expect(open)?;
        self.deeper()?;
        let mut operands = Vec::new();
        while !self.accept(close) {
            operands.push(self.operand()?);
            if !self.accept(b',') && !self.is_mark(close) {
                return self.wrong("','");
            }
        }
        self.depth -= 1;
        Ok(operands)
    }

    fn address(&mut self) -> Result<Operand<'a>> {
        self.expect(b'[')?;
        let base = match self.peek() {
            Token::Word(name) => {
                self.tokens.step(1);
                Some(name)
            }
            _ => None,
        };
        let mut offset = 0i64;
        if base.is_none() {
            offset = self.constant(0)? as i64;
        }
        loop {
            if self.accept(b'+') {
                offset = offset.wrapping_add(self.constant_unary(0)? as i64);
            } else if self.accept(b'-') {
                offset = offset.wrapping_sub(self.constant_unary(0)? as i64);
            } else {
                break;
            }
        }
        // `[name[4]]`, an indexed symbol.
        if self.accept(b'[') {
            offset = offset.wrapping_add(self.constant(0)? as i64);
            self.expect(b']')?;
        }
        if self.is_mark(b',') {
            return Err(ParseError::unsupported(self.place(), "a texture or tensor address"));
        }
        self.expect(b']')?;
        Ok(Operand::Address(base, offset))
    }

    /// A constant integer expression, C precedence from `level` (0 = lowest) up.
    pub(super) fn constant(&mut self, nested: u32) -> Result<u64> {
        self.binary(0, nested)
    }

    fn constant_unary(&mut self, nested: u32) -> Result<u64> {
        self.primary(nested)
    }

    fn binary(&mut self, level: usize, nested: u32) -> Result<u64> {
        const LEVELS: [&[&[u8]]; 6] = [
            &[b"|"],
            &[b"^"],
            &[b"&"],
            &[b"<<", b">>"],
            &[b"+", b"-"],
            &[b"*", b"/", b"%"],
        ];
        if level == LEVELS.len() {
            return self.primary(nested);
        }
        let mut value = self.binary(level + 1, nested)?;
        'next: loop {
            for sign in LEVELS[level] {
                let is_mark = |(at, mark): (usize, &u8)| self.tokens.peek(at).0 == Token::Mark(*mark);
                let matches = sign.iter().enumerate().all(is_mark);
                if matches {
                    let place = self.place();
                    self.tokens.step(sign.len());
                    let right = self.binary(level + 1, nested)?;
                    value = match *sign {
                        b"|" => value | right,
                        b"^" => value ^ right,
                        b"&" => value & right,
                        b"<<" => value.checked_shl(right as u32).unwrap_or(0),
                        b">>" => value.checked_shr(right as u32).unwrap_or(0),
                        b"+" => value.wrapping_add(right),
                        b"-" => value.wrapping_sub(right),
                        b"*" => value.wrapping_mul(right),
                        _ if right == 0 => return Err(ParseError::syntax(place, "division by zero")),
                        b"/" => value / right,
                        _ => value % right,
                    };
                    continue 'next;
                }
            }
            return Ok(value);
        }
    }

    pub(super) fn primary(&mut self, nested: u32) -> Result<u64> {
        if nested > DEEPEST {
            return Err(ParseError::syntax(self.place(), "nested too deep"));
        }
        match self.peek() {
            Token::Integer(value, _) => {
                self.tokens.step(1);
                Ok(value)
            }
            Token::Word("WARP_SZ") => {
                self.tokens.step(1);
                Ok(32)
            }
            Token::Mark(b'-') => {
                self.tokens.step(1);
                Ok(self.primary(nested + 1)?.wrapping_neg())
            }
            Token::Mark(b'+') => {
                self.tokens.step(1);
                self.primary(nested + 1)
            }
            Token::Mark(b'~') => {
                self.tokens.step(1);
                Ok(!self.primary(nested + 1)?)
            }
            Token::Mark(b'!') => {
                self.tokens.step(1);
                Ok(u64::from(self.primary(nested + 1)? == 0))
            }
            Token::Mark(b'(') => {
                self.tokens.step(1);
                // A cast such as `(.u64)` says nothing that the target type does not.
                if matches!(self.peek(), Token::Dot("u64" | "s64")) {
                    self.tokens.step(1);
                    self.expect(b')')?;
                    return self.primary(nested + 1);
                }
                let value = self.constant(nested + 1)?;
                self.expect(b')')?;
                Ok(value)
            }
            _ => self.wrong("a number"),
        }
    }
}

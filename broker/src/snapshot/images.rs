// SPDX-License-Identifier: Apache-2.0
//! CRIU's images as far as we read them: entries of a length and a message of numbered fields (protobuf).

use std::ops::Range;

/// Before the first entry: two magic numbers.
const HEAD: usize = 8;

/// A field of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its number.
    pub number: u64,
    /// Its value, where it is a number of variable length.
    pub value: u64,
    /// Where in the image its value, or its content, lies.
    pub span: Range<usize>,
}

/// Where in an image its entries lie.
pub fn entries(image: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = HEAD;
    std::iter::from_fn(move || {
        let length = u32::from_le_bytes(image.get(at..at + 4)?.try_into().ok()?) as usize;
        let span = at + 4..(at + 4).checked_add(length).filter(|end| *end <= image.len())?;
        at = span.end;
        Some(span)
    })
}

/// The fields of the message that lies there. It ends where it is no message.
pub fn fields(image: &[u8], within: Range<usize>) -> impl Iterator<Item = Field> {
    let mut at = within.start;
    let message = image.get(..within.end).unwrap_or_default();
    std::iter::from_fn(move || {
        let key = number(message, &mut at)?;
        let start = at;
        let mut value = 0;
        let span = match key & 7 {
            0 => {
                value = number(message, &mut at)?;
                start..at
            }
            2 => {
                let length = usize::try_from(number(message, &mut at)?).ok()?;
                at..at.checked_add(length)?
            }
            1 => start..start + 8,
            5 => start..start + 4,
            _ => return None,
        };
        at = span.end;
        (span.end <= message.len()).then_some(Field {
            number: key >> 3,
            value,
            span,
        })
    })
}

/// A number of variable length.
fn number(message: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = *message.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
pub(super) mod made {
    /// A number as a field.
    pub fn field(number: u8, mut value: u64) -> Vec<u8> {
        let mut bytes = vec![number << 3];
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
    }

    /// A short message as a field.
    pub fn inner(number: u8, message: &[u8]) -> Vec<u8> {
        let mut bytes = vec![number << 3 | 2, message.len() as u8];
        bytes.extend(message);
        bytes
    }

    /// An image of entries.
    pub fn image(messages: &[Vec<u8>]) -> Vec<u8> {
        let mut image = vec![0x55; super::HEAD];
        for message in messages {
            image.extend((message.len() as u32).to_le_bytes());
            image.extend(message);
        }
        image
    }
}

#[cfg(test)]
mod tests {
    use super::made::{field, image, inner};
    use super::*;

    #[test]
    fn entries_and_fields_are_found_and_what_is_cut_off_is_not() {
        let first = [field(1, 300), inner(3, &field(2, 7))].concat();
        let whole = image(&[first, field(2, u64::MAX)]);
        let spans: Vec<Range<usize>> = entries(&whole).collect();
        let found: Vec<Field> = fields(&whole, spans[0].clone()).collect();
        assert_eq!((found.len(), found[0].number, found[0].value), (2, 1, 300));
        let deeper: Vec<Field> = fields(&whole, found[1].span.clone()).collect();
        assert_eq!((found[1].number, deeper[0].number, deeper[0].value), (3, 2, 7));
        assert_eq!(
            fields(&whole, spans[1].clone()).next().map(|field| field.value),
            Some(u64::MAX)
        );
        for length in 0..whole.len() {
            let cut = &whole[..length];
            let found = entries(cut).flat_map(|span| fields(cut, span)).count();
            assert!(found < 3, "{length}");
        }
    }
}

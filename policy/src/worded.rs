// SPDX-License-Identifier: Apache-2.0
//! Enums whose values have words: a row for each value, with the word.

/// Declares such an enum, `ALL` of its values in a row, and the function of this name that answers the word.
macro_rules! worded {
    ($(#[$doc:meta])* $vis:vis enum $name:ident($word:ident) {
        $( $(#[$note:meta])* $value:ident = $text:literal, )+
    }) => {
        $(#[$doc])*
        $vis enum $name {
            $( $(#[$note])* $value, )+
        }

        impl $name {
            /// All of them.
            pub const ALL: [Self; [$($text),+].len()] = [$(Self::$value),+];

            /// As users write and read it.
            #[must_use]
            pub const fn $word(self) -> &'static str {
                match self {
                    $( Self::$value => $text, )+
                }
            }
        }
    };
}
pub(crate) use worded;

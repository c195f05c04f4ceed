// SPDX-License-Identifier: Apache-2.0
//! How the vendor's structs, handles and constants are declared here: once, with their C names, so that tests can
//! compare the two.

/// One member as we lay it out.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name in C.
    pub name: &'static str,
    /// Bytes from the start of the struct.
    pub offset: usize,
}

/// One struct or union as we lay it out.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Its name here.
    pub name: &'static str,
    /// Its name in C; `Outer.member` where C has an unnamed type there; empty where C has no way to name it.
    pub c_name: &'static str,
    /// Bytes.
    pub size: usize,
    /// Alignment in bytes.
    pub align: usize,
    /// Its members.
    pub fields: &'static [Field],
}

/// Declares plain-data structs and unions, and the list of their layouts.
///
/// `struct Name = "CName" { field: Type, renamed = "cField": Type, }`, with `align N` before the brace where the
/// header asks for more than the members need; fields are public. Each gets `Clone`, `Copy`,
/// `Debug` (a union shows its name only: which member is meant is known elsewhere) and a `Default` of zeroes.
macro_rules! c_layouts {
    ($( $kind:tt $name:ident = $c_name:literal $(align $align:literal)? {
        $( $field:ident $(= $c_field:literal)? : $type:ty, )*
    } )*) => {
        $( c_layouts! { @declare $kind $name $c_name $(align $align)? { $( $field: $type, )* } } )*

        /// Layouts of the types declared in this file.
        pub const LAYOUTS: &[$crate::types::Layout] = &[ $( $crate::types::Layout {
            name: stringify!($name),
            c_name: $c_name,
            size: size_of::<$name>(),
            align: align_of::<$name>(),
            fields: &[ $( $crate::types::Field {
                name: c_layouts!(@name $field $($c_field)?),
                offset: core::mem::offset_of!($name, $field),
            } ),* ],
        } ),* ];
    };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $c_field:literal) => { $c_field };
    (@declare struct $name:ident $c_name:literal $(align $align:literal)? { $( $field:ident: $type:ty, )* }) => {
        #[doc = concat!("`", $c_name, "` of the vendor's header.")]
        // The vendor's member names, explained in the vendor's manual.
        #[allow(non_snake_case, missing_docs)]
        #[derive(Clone, Copy, Debug)]
        #[repr(C $(, align($align))?)]
        pub struct $name { $( pub $field: $type, )* }
        c_layouts! { @zero $name }
    };
    (@declare union $name:ident $c_name:literal { $( $field:ident: $type:ty, )* }) => {
        #[doc = concat!("`", $c_name, "` of the vendor's header (a union).")]
        // The vendor's member names, explained in the vendor's manual.
        #[allow(non_snake_case, missing_docs)]
        #[derive(Clone, Copy)]
        #[repr(C)]
        pub union $name { $( pub $field: $type, )* }
        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(stringify!($name))
            }
        }
        c_layouts! { @zero $name }
    };
    (@zero $name:ident) => {
        impl Default for $name {
            fn default() -> Self {
                // SAFETY: the type holds only integers, floats, raw pointers, handles over raw pointers, optional
                // function pointers and arrays, structs and unions of these; all zeroes is a value of each.
                unsafe { core::mem::zeroed() }
            }
        }
    };
}

/// Declares handles: pointers of the vendor that we compare and pass on, and never follow.
macro_rules! handles {
    ($( $name:ident = $c_name:literal, )*) => { $(
        #[doc = concat!("A `", $c_name, "`: the vendor's pointer, never followed here.")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub *mut core::ffi::c_void);

        impl $name {
            /// The null handle.
            pub const NULL: Self = Self(core::ptr::null_mut());

            /// True for the null handle.
            pub fn is_null(self) -> bool {
                self.0.is_null()
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::NULL
            }
        }

        // SAFETY: a handle is an opaque number to us; the driver takes it from any thread.
        unsafe impl Send for $name {}
        // SAFETY: as above; there is nothing behind it that we could race on.
        unsafe impl Sync for $name {}
    )* };
}

/// Declares integer constants under the vendor's names, and the list of them.
///
/// Groups are `/// Of what` `type { NAME = value, }`.
macro_rules! values {
    ($( #[doc = $of:literal] $type:ident { $( $name:ident = $value:literal, )* } )*) => {
        $( $(
            #[doc = $of]
            // Some of the vendor's names hold small letters.
            #[allow(non_upper_case_globals)]
            pub const $name: $type = $value;
        )* )*

        /// Every name with its value, for the tests that compare them with the vendor's header.
        pub const ALL: &[(&str, i64)] = &[ $( $( (stringify!($name), $name as i64), )* )* ];
    };
}

pub(crate) use {c_layouts, handles, values};

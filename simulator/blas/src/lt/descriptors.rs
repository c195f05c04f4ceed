// SPDX-License-Identifier: Apache-2.0
//! The descriptors of cublasLt: plain values that the library makes, or that the program keeps in memory of its own
//! (`..._internal`, which the public header's inline functions call with the size of that memory).

use core::ffi::{c_int, c_void};

use crate::handle::{answer, exports};
use crate::status::{Outcome, Status, refuse};

/// Where an attribute lies in a descriptor, and its size.
type Place = (usize, usize);

/// What all descriptors have in common.
pub trait Descriptor: Copy {
    /// First word, by which another kind is told apart.
    const MAGIC: u32;
    /// Name in messages.
    const NAME: &'static str;
    /// Where an attribute lies; `None` for one that is not built.
    fn place(attribute: c_int) -> Option<Place>;
}

macro_rules! descriptor {
    ($(#[$doc:meta])* $name:ident, $known:literal, $magic:literal {
        $($(#[$field_doc:meta])* $field:ident: $type:ty $(= $attribute:literal)?,)*
    }) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub struct $name {
            magic: u32,
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl Descriptor for $name {
            const MAGIC: u32 = $magic;
            const NAME: &'static str = $known;

            fn place(attribute: c_int) -> Option<Place> {
                match attribute {
                    $($($attribute => Some((core::mem::offset_of!($name, $field), size_of::<$type>())),)?)*
                    _ => None,
                }
            }
        }
    };
}

descriptor! {
    /// `cublasLtMatmulDesc_t`: at most the 23 words that CUDA 12.0 has for it.
    MatmulDesc, "cublasLtMatmulDesc", 0x6d61_746d {
        /// `cublasComputeType_t`.
        compute: c_int = 0,
        /// Type of alpha and beta.
        scale: c_int = 1,
        /// Where they are.
        pointer_mode: c_int = 2,
        /// Operation on A.
        a_operation: c_int = 3,
        /// Operation on B.
        b_operation: c_int = 4,
        /// Operation on C.
        c_operation: c_int = 5,
        /// Which part of the matrices is meant.
        fill: c_int = 6,
        /// `cublasLtEpilogue_t`.
        epilogue: u32 = 7,
        /// Type of the bias; -1 for D's.
        bias_type: c_int = 26,
        /// Address of the bias.
        bias: u64 = 8,
        /// Elements from one product's bias to the next.
        bias_stride: i64 = 10,
        /// Kept and told.
        multiprocessors: c_int = 15,
        /// Kept and told: sums are in single precision.
        fast_sums: i8 = 25,
    }
}
descriptor! {
    /// `cublasLtMatrixLayout_t`: at most 8 words.
    MatrixLayout, "cublasLtMatrixLayout", 0x6d61_746c {
        /// `cudaDataType`.
        element: c_int = 0,
        /// `cublasLtOrder_t`.
        order: c_int = 1,
        /// Products of a batch.
        count: c_int = 5,
        /// Rows.
        rows: u64 = 2,
        /// Columns.
        columns: u64 = 3,
        /// Elements from a column to the next.
        leading: i64 = 4,
        /// Elements from one matrix of a batch to the next.
        stride: i64 = 6,
    }
}
descriptor! {
    /// `cublasLtMatmulPreference_t`: at most 8 words; kept and told, for there is one algorithm, without a workspace.
    Preference, "cublasLtMatmulPreference", 0x6d61_7470 {
        /// Search mode.
        search: c_int = 0,
        /// Most bytes of a workspace.
        workspace: u64 = 1,
        /// Reduction schemes that are allowed.
        reductions: u32 = 3,
        /// Alignment of A.
        a_alignment: u32 = 5,
        /// Alignment of B.
        b_alignment: u32 = 6,
        /// Alignment of C.
        c_alignment: u32 = 7,
        /// Alignment of D.
        d_alignment: u32 = 8,
        /// Most waves.
        waves: f32 = 9,
        /// Implementations that are allowed.
        implementations: u64 = 12,
    }
}
const _: () = assert!(size_of::<MatmulDesc>() <= 23 * 8);
const _: () = assert!(size_of::<MatrixLayout>() <= 8 * 8 && size_of::<Preference>() <= 8 * 8);

/// The whole matrix.
pub const FULL: c_int = 2;
/// Stored by columns.
pub const BY_COLUMNS: c_int = 0;

fn matmul(compute: c_int, scale: c_int) -> MatmulDesc {
    MatmulDesc {
        magic: MatmulDesc::MAGIC,
        compute,
        scale,
        pointer_mode: 0,
        a_operation: 0,
        b_operation: 0,
        c_operation: 0,
        fill: FULL,
        epilogue: 1,
        bias_type: -1,
        bias: 0,
        bias_stride: 0,
        multiprocessors: 0,
        fast_sums: 0,
    }
}

fn layout(element: c_int, rows: u64, columns: u64, leading: i64) -> MatrixLayout {
    MatrixLayout {
        magic: MatrixLayout::MAGIC,
        element,
        order: BY_COLUMNS,
        count: 1,
        rows,
        columns,
        leading,
        stride: 0,
    }
}

fn preference() -> Preference {
    Preference {
        magic: Preference::MAGIC,
        search: 0,
        workspace: 0,
        reductions: u32::MAX,
        a_alignment: 256,
        b_alignment: 256,
        c_alignment: 256,
        d_alignment: 256,
        waves: 0.0,
        implementations: u64::MAX,
    }
}

/// The descriptor behind a pointer of the program's.
pub fn read<D: Descriptor>(from: *const D) -> Outcome<D> {
    if from.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    // SAFETY: not null; the program passes a descriptor, at least of its first word's length, which is looked at first.
    unsafe {
        if from.cast::<u32>().read() != D::MAGIC {
            return Err(Status::INVALID_VALUE);
        }
        Ok(from.read())
    }
}

fn create<D: Descriptor>(to: *mut *mut D, value: D) -> Outcome<()> {
    if to.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    answer(to, Box::into_raw(Box::new(value)))
}

fn initialise<D: Descriptor>(to: *mut D, size: usize, value: D) -> Outcome<()> {
    if size < size_of::<D>() {
        return Err(Status::INVALID_VALUE);
    }
    answer(to, value)
}

fn destroy<D: Descriptor>(descriptor: *mut D) -> Outcome<()> {
    if descriptor.is_null() {
        return Ok(());
    }
    read(descriptor)?;
    // SAFETY: one that `create` made, by contract of the library's function; its magic is gone before its memory is.
    unsafe {
        descriptor.cast::<u32>().write(0);
        drop(Box::from_raw(descriptor));
    }
    Ok(())
}

fn place<D: Descriptor>(attribute: c_int) -> Outcome<Place> {
    D::place(attribute).ok_or_else(|| refuse(D::NAME, &format!("attribute {attribute}")))
}

fn set<D: Descriptor>(descriptor: *mut D, attribute: c_int, from: *const c_void, size: usize) -> Outcome<()> {
    read(descriptor)?;
    let (offset, wanted) = place::<D>(attribute)?;
    if from.is_null() || size != wanted {
        return Err(Status::INVALID_VALUE);
    }
    // SAFETY: the attribute lies in the descriptor, and the program's value has its size.
    unsafe { core::ptr::copy_nonoverlapping(from.cast::<u8>(), descriptor.cast::<u8>().add(offset), size) };
    Ok(())
}

fn get<D: Descriptor>(
    descriptor: *const D,
    attribute: c_int,
    to: *mut c_void,
    size: usize,
    written: *mut usize,
) -> Outcome<()> {
    read(descriptor)?;
    let (offset, wanted) = place::<D>(attribute)?;
    if size == 0 {
        // A question for the size alone.
        return answer(written, wanted);
    }
    if to.is_null() || size < wanted {
        return Err(Status::INVALID_VALUE);
    }
    // SAFETY: as in `set`.
    unsafe { core::ptr::copy_nonoverlapping(descriptor.cast::<u8>().add(offset), to.cast::<u8>(), wanted) };
    if !written.is_null() {
        answer(written, wanted)?;
    }
    Ok(())
}

macro_rules! calls {
    ($($type:ident: $destroy:ident, $set:ident, $get:ident;)*) => { exports! {$(
        $destroy(descriptor: *mut $type) destroy(descriptor);
        $set(descriptor: *mut $type, attribute: c_int, from: *const c_void, size: usize)
            set(descriptor, attribute, from, size);
        $get(descriptor: *const $type, attribute: c_int, to: *mut c_void, size: usize, written: *mut usize)
            get(descriptor, attribute, to, size, written);
    )*} };
}
calls! {
    MatmulDesc: partage_cublasLtMatmulDescDestroy, partage_cublasLtMatmulDescSetAttribute,
        partage_cublasLtMatmulDescGetAttribute;
    MatrixLayout: partage_cublasLtMatrixLayoutDestroy, partage_cublasLtMatrixLayoutSetAttribute,
        partage_cublasLtMatrixLayoutGetAttribute;
    Preference: partage_cublasLtMatmulPreferenceDestroy, partage_cublasLtMatmulPreferenceSetAttribute,
        partage_cublasLtMatmulPreferenceGetAttribute;
}

exports! {
    partage_cublasLtMatmulDescCreate(to: *mut *mut MatmulDesc, compute: c_int, scale: c_int)
        create(to, matmul(compute, scale));
    partage_cublasLtMatmulDescInit_internal(to: *mut MatmulDesc, size: usize, compute: c_int, scale: c_int)
        initialise(to, size, matmul(compute, scale));
    partage_cublasLtMatrixLayoutCreate(
        to: *mut *mut MatrixLayout, element: c_int, rows: u64, columns: u64, leading: i64
    ) create(to, layout(element, rows, columns, leading));
    partage_cublasLtMatrixLayoutInit_internal(
        to: *mut MatrixLayout, size: usize, element: c_int, rows: u64, columns: u64, leading: i64
    ) initialise(to, size, layout(element, rows, columns, leading));
    partage_cublasLtMatmulPreferenceCreate(to: *mut *mut Preference) create(to, preference());
    partage_cublasLtMatmulPreferenceInit_internal(to: *mut Preference, size: usize)
        initialise(to, size, preference());
}

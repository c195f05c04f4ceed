// SPDX-License-Identifier: Apache-2.0
//! Matrix instructions of a warp: `mma`, `ldmatrix`, `stmatrix`, and asynchronous copies to shared memory.
//!
//! A fragment is spread over the lanes: lane `4 g + t` holds elements of row (or column) `g` and around column (or
//! row) `t`. The tables of the PTX manual become the place functions of [`Shape`].

use super::lanes::{Inst, LANES, Lanes, each_lane};
use super::number::{Bf16, F16};
use super::shape::{Element, Shape, Total};
use super::spaces::{Generic, Global, Shared, SpaceTag};
use crate::error::FaultKind;

/// A number of any of the types, wide enough for all of them.
#[derive(Clone, Copy, Default)]
struct Wide(f64);

unsafe fn element(lanes: &Lanes, rows: &[u32], kind: Element, lane: usize, index: usize) -> f64 {
    let per = kind.per_register();
    // SAFETY: the rows are of the width that the type has.
    unsafe {
        if kind == Element::F64 {
            return f64::from_bits((*lanes.row::<u64>(rows[index]))[lane]);
        }
        let word = (*lanes.row::<u32>(rows[index / per]))[lane];
        let within = (index % per) as u32;
        match kind {
            Element::F16 => f64::from(F16((word >> (16 * within)) as u16).single()),
            Element::Bf16 => f64::from(Bf16((word >> (16 * within)) as u16).single()),
            // The hardware ignores the low 13 bits.
            Element::Tf32 => f64::from(f32::from_bits(word & !0x1fff)),
            Element::S8 => f64::from((word >> (8 * within)) as i8),
            Element::U8 | Element::F64 => f64::from((word >> (8 * within)) as u8),
        }
    }
}

/// `mma`: the rows of d, a, b and c stand in the list at `c`; `x` is the number of the shape in the code's table.
///
/// # Safety
/// The rule on handlers in `lanes`; the shape is the one that the list was made for.
pub unsafe fn multiply(lanes: &mut Lanes, inst: &Inst, mask: u32) -> bool {
    // SAFETY: by contract.
    unsafe {
        let shape = *lanes.shapes.add(inst.x as usize);
        let [in_a, in_b, in_c] = shape.registers();
        let mut at = inst.c;
        let mut take = |count: usize| {
            let rows: Vec<u32> = (0..count as u32).map(|index| lanes.listed(at, index)).collect();
            at += count as u32;
            rows
        };
        let (d, a, b, c) = (take(in_c), take(in_a), take(in_b), take(in_c));
        let mut left = [[Wide::default(); 32]; 16];
        let mut right = [[Wide::default(); 8]; 32];
        let mut total = [[Wide::default(); 8]; 16];
        let in_total = shape.m * 8 / LANES;
        for lane in 0..LANES {
            for index in 0..in_a * shape.a.per_register() {
                let (row, column) = shape.place_a(lane, index);
                left[row][column] = Wide(element(lanes, &a, shape.a, lane, index));
            }
            for index in 0..in_b * shape.b.per_register() {
                let (row, column) = shape.place_b(lane, index);
                right[row][column] = Wide(element(lanes, &b, shape.b, lane, index));
            }
            for index in 0..in_total {
                let (row, column) = Shape::place_c(lane, index);
                total[row][column] = Wide(total_at(lanes, &c, shape.total, lane, index));
            }
        }
        for (row, sums) in total.iter_mut().enumerate().take(shape.m) {
            for (column, sum) in sums.iter_mut().enumerate() {
                for k in 0..shape.k {
                    *sum = Wide(step(shape.total, left[row][k].0, right[k][column].0, sum.0));
                }
            }
        }
        each_lane(mask, |lane| {
            for index in 0..in_total {
                let (row, column) = Shape::place_c(lane, index);
                set_total(lanes, &d, &shape, lane, index, total[row][column].0);
            }
        });
    }
    true
}

/// One multiply-add in the precision of the accumulator. Products of halves are exact in single precision, and sums
/// of integers are exact in a double; halves accumulate in single precision and are rounded at the end.
fn step(total: Total, a: f64, b: f64, sum: f64) -> f64 {
    match total {
        Total::F16 | Total::F32 => f64::from((a * b + sum) as f32),
        Total::S32 => a * b + sum,
        Total::F64 => a.mul_add(b, sum),
    }
}

unsafe fn total_at(lanes: &Lanes, rows: &[u32], total: Total, lane: usize, index: usize) -> f64 {
    // SAFETY: the rows are of the width that the type has.
    unsafe {
        match total {
            Total::F64 => f64::from_bits((*lanes.row::<u64>(rows[index]))[lane]),
            Total::F32 => f64::from(f32::from_bits((*lanes.row::<u32>(rows[index]))[lane])),
            Total::S32 => f64::from((*lanes.row::<u32>(rows[index]))[lane] as i32),
            Total::F16 => {
                let word = (*lanes.row::<u32>(rows[index / 2]))[lane];
                f64::from(F16((word >> (16 * (index % 2))) as u16).single())
            }
        }
    }
}

unsafe fn set_total(lanes: &mut Lanes, rows: &[u32], shape: &Shape, lane: usize, index: usize, value: f64) {
    // SAFETY: as above.
    unsafe {
        match shape.total {
            Total::F64 => (*lanes.row::<u64>(rows[index]))[lane] = value.to_bits(),
            Total::F32 => (*lanes.row::<u32>(rows[index]))[lane] = (value as f32).to_bits(),
            Total::S32 if shape.saturates => (*lanes.row::<u32>(rows[index]))[lane] = value as i32 as u32,
            Total::S32 => (*lanes.row::<u32>(rows[index]))[lane] = value as i64 as u32,
            Total::F16 => {
                let word = &mut (*lanes.row::<u32>(rows[index / 2]))[lane];
                let shift = 16 * (index % 2);
                let half = u32::from(F16::from_single(value as f32).0);
                *word = (*word & !(0xffff << shift)) | half << shift;
            }
        }
    }
}

/// `ldmatrix`: `b` matrices of 8 by 8 halves, whose row addresses the lanes hold in row `a` (plus the low half of
/// `x`); results go to the list at `c`. Bit 32 of `x` transposes, bit 33 says that the addresses are generic.
///
/// # Safety
/// The rule on handlers in `lanes`.
pub unsafe fn load_matrix(lanes: &mut Lanes, inst: &Inst, mask: u32) -> bool {
    // SAFETY: by contract; `matrix_row` finds sixteen readable bytes, aligned, for each row.
    unsafe {
        let addresses = *lanes.row::<u64>(inst.a);
        for matrix in 0..inst.b as usize {
            let mut halves = [[0u16; 8]; 8];
            for (row, values) in halves.iter_mut().enumerate() {
                let Some(from) = matrix_row(lanes, inst, &addresses, matrix * 8 + row) else {
                    return false;
                };
                *values = from.read();
            }
            let d = lanes.row::<u32>(lanes.listed(inst.c, matrix as u32));
            each_lane(mask, |lane| {
                let [low, high] = pair_of(inst, lane).map(|(row, column)| halves[row][column]);
                (*d)[lane] = u32::from(low) | u32::from(high) << 16;
            });
        }
    }
    true
}

/// `stmatrix`, the other way: the fragments are the list at `c`, and all else is as of [`load_matrix`].
///
/// # Safety
/// The rule on handlers in `lanes`.
pub unsafe fn store_matrix(lanes: &mut Lanes, inst: &Inst, mask: u32) -> bool {
    // SAFETY: by contract; `matrix_row` finds sixteen writable bytes, aligned, for each row.
    unsafe {
        let addresses = *lanes.row::<u64>(inst.a);
        for matrix in 0..inst.b as usize {
            let mut halves = [[0u16; 8]; 8];
            let fragments = lanes.row::<u32>(lanes.listed(inst.c, matrix as u32));
            each_lane(mask, |lane| {
                let [(row, column), (next_row, next_column)] = pair_of(inst, lane);
                halves[row][column] = (*fragments)[lane] as u16;
                halves[next_row][next_column] = ((*fragments)[lane] >> 16) as u16;
            });
            for (row, values) in halves.into_iter().enumerate() {
                let Some(to) = matrix_row(lanes, inst, &addresses, matrix * 8 + row) else {
                    return false;
                };
                to.write(values);
            }
        }
    }
    true
}

/// Row and column of the two halves that a lane holds of a matrix, the low one first.
fn pair_of(inst: &Inst, lane: usize) -> [(usize, usize); 2] {
    let (group, thread) = (lane / 4, lane % 4 * 2);
    let is_transposed = inst.x >> 32 & 1 == 1;
    [thread, thread + 1].map(|next| if is_transposed { (next, group) } else { (group, next) })
}

/// The row of a matrix that a lane names. `None`: the access failed, and the lanes say how.
fn matrix_row(lanes: &mut Lanes, inst: &Inst, addresses: &[u64; LANES], lane: usize) -> Option<*mut [u16; 8]> {
    const BYTES: u64 = 16;
    let offset = inst.x as u32 as i32 as u64;
    let address = addresses[lane].wrapping_add(offset);
    let found = if inst.x >> 33 & 1 == 1 {
        place::<Generic>(lanes, address, lane, BYTES)
    } else {
        place::<Shared>(lanes, address, lane, BYTES)
    };
    found.map(|at| at.cast())
}

/// `cp.async`: copies `x` bytes from global row `b` to shared row `a`; row `c` says how many are taken from the
/// source, the others being zero. The copy is done at once, so that waiting for it is nothing.
///
/// # Safety
/// The rule on handlers in `lanes`.
pub unsafe fn copy_async(lanes: &mut Lanes, inst: &Inst, mask: u32) -> bool {
    // SAFETY: by contract.
    let (to, from, taken) = unsafe {
        (
            *lanes.row::<u64>(inst.a),
            *lanes.row::<u64>(inst.b),
            *lanes.row::<u32>(inst.c),
        )
    };
    for lane in (0..LANES).filter(|lane| mask >> lane & 1 == 1) {
        let count = u64::from(taken[lane]).min(inst.x);
        let Some(target) = place::<Shared>(lanes, to[lane], lane, inst.x) else {
            return false;
        };
        let mut bytes = [0u8; 16];
        if count > 0 {
            let Some(source) = place::<Global>(lanes, from[lane], lane, inst.x) else {
                return false;
            };
            // SAFETY: `place` found `x` readable bytes, at most sixteen.
            unsafe { std::ptr::copy_nonoverlapping(source, bytes.as_mut_ptr(), count as usize) };
        }
        // SAFETY: `place` found `x` writable bytes.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, inst.x as usize) };
    }
    true
}

fn place<S: SpaceTag>(lanes: &mut Lanes, address: u64, lane: usize, bytes: u64) -> Option<*mut u8> {
    let found = lanes.spaces.locate::<S>(address, lane, bytes);
    if address & (bytes - 1) != 0 {
        lanes.fail(FaultKind::MisalignedAddress(address));
        return None;
    }
    if found.is_none() {
        lanes.fail(FaultKind::IllegalAddress(address));
    }
    found
}

// SPDX-License-Identifier: Apache-2.0
//! Names and texts of results, and what an unknown code does.

use partage_abi::nvml::NvmlReturn;
use partage_abi::types::CuResult;

#[test]
fn known_codes_are_ascending_and_have_names() {
    assert!(CuResult::ALL.windows(2).all(|pair| pair[0].0 < pair[1].0));
    assert!(NvmlReturn::ALL.windows(2).all(|pair| pair[0].0 < pair[1].0));
    assert_eq!(CuResult(2).name(), Some(c"CUDA_ERROR_OUT_OF_MEMORY"));
    assert_eq!(CuResult(2).description(), Some(c"out of memory"));
    assert_eq!(format!("{:?}", CuResult::OUT_OF_MEMORY), "CUDA_ERROR_OUT_OF_MEMORY (2)");
}

/// A newer driver's code broke a release build that had made the codes a Rust enumeration.
#[test]
fn unknown_codes_are_values_like_any_other() {
    let code = CuResult(123_456);
    assert_eq!((code.name(), code.description()), (None, None));
    assert_eq!(format!("{code:?}"), "CUresult 123456");
    assert!(!code.is_success());
    assert_eq!(NvmlReturn(77).description(), c"Unknown Error");
}

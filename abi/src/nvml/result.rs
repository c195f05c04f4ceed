// SPDX-License-Identifier: Apache-2.0
//! Results of NVML calls: the codes and the texts of `nvmlErrorString`.

use core::ffi::{CStr, c_int};

/// An `nvmlReturn_t`; an integer, so that a code of a newer library stays a value.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct NvmlReturn(pub c_int);

impl NvmlReturn {
    /// True for [`NvmlReturn::SUCCESS`].
    pub const fn is_success(self) -> bool {
        self.0 == 0
    }

    /// What `nvmlErrorString` answers; the text of UNKNOWN for a code that is not known here.
    pub fn description(self) -> &'static CStr {
        Self::ALL
            .iter()
            .find(|known| known.0 == self)
            .map_or(c"Unknown Error", |known| known.1)
    }
}

impl core::fmt::Debug for NvmlReturn {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} ({})", self.description().to_str().unwrap_or_default(), self.0)
    }
}

macro_rules! results {
    ($( $name:ident = $code:literal, $text:literal; )*) => {
        // The vendor's names, explained by their texts.
        #[allow(missing_docs)]
        impl NvmlReturn {
            $( pub const $name: Self = Self($code); )*

            /// Every known code with its text, in ascending order.
            pub const ALL: &[(Self, &'static CStr)] = &[ $( (Self::$name, $text), )* ];
        }
    };
}

results! {
    SUCCESS = 0, c"Success";
    UNINITIALIZED = 1, c"Uninitialized";
    INVALID_ARGUMENT = 2, c"Invalid Argument";
    NOT_SUPPORTED = 3, c"Not Supported";
    NO_PERMISSION = 4, c"Insufficient Permissions";
    ALREADY_INITIALIZED = 5, c"Already Initialized";
    NOT_FOUND = 6, c"Not Found";
    INSUFFICIENT_SIZE = 7, c"Insufficient Size";
    INSUFFICIENT_POWER = 8, c"Insufficient External Power";
    DRIVER_NOT_LOADED = 9, c"Driver Not Loaded";
    TIMEOUT = 10, c"Timeout";
    IRQ_ISSUE = 11, c"Interrupt Request Issue";
    LIBRARY_NOT_FOUND = 12, c"NVML Shared Library Not Found";
    FUNCTION_NOT_FOUND = 13, c"Function Not Found";
    CORRUPTED_INFOROM = 14, c"Corrupted infoROM";
    GPU_IS_LOST = 15, c"GPU is lost";
    RESET_REQUIRED = 16, c"GPU requires reset";
    OPERATING_SYSTEM = 17, c"GPU access blocked by the operating system";
    LIB_RM_VERSION_MISMATCH = 18, c"Driver/library version mismatch";
    IN_USE = 19, c"In use by another client";
    MEMORY = 20, c"Insufficient Memory";
    NO_DATA = 21, c"No data";
    VGPU_ECC_NOT_SUPPORTED = 22, c"vGPU ECC is not supported";
    INSUFFICIENT_RESOURCES = 23, c"Insufficient Resources";
    FREQ_NOT_SUPPORTED = 24, c"Frequency Not Supported";
    ARGUMENT_VERSION_MISMATCH = 25, c"Argument Version Mismatch";
    DEPRECATED = 26, c"Deprecated";
    NOT_READY = 27, c"System Not Ready";
    GPU_NOT_FOUND = 28, c"GPU Not Found";
    INVALID_STATE = 29, c"Invalid State";
    RESET_TYPE_NOT_SUPPORTED = 30, c"Reset Type Not Supported";
    UNKNOWN = 999, c"Unknown Error";
}

// SPDX-License-Identifier: Apache-2.0
//! Codes of the runtime, their names and texts, and each thread's last error.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};

use partage_abi::types::CuResult;

/// A `cudaError_t` that is not success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub c_int);

/// What a call of the runtime came to.
pub type Answer = Result<(), Code>;

impl Code {
    /// A wrong argument.
    pub const INVALID_VALUE: Self = Self(1);
    /// A symbol that nobody registered.
    pub const INVALID_SYMBOL: Self = Self(13);
    /// There is no driver, or one that is too old.
    pub const INSUFFICIENT_DRIVER: Self = Self(35);
    /// The driver lacks the function.
    pub const CALL_REQUIRES_NEWER_DRIVER: Self = Self(36);
    /// A launch without a configuration.
    pub const MISSING_CONFIGURATION: Self = Self(52);
    /// A function that nobody registered.
    pub const INVALID_DEVICE_FUNCTION: Self = Self(98);
    /// There is no such device.
    pub const INVALID_DEVICE: Self = Self(101);
    /// The driver does not know the name.
    pub const SYMBOL_NOT_FOUND: Self = Self(500);
    /// Work is not over.
    pub const NOT_READY: Self = Self(600);
}

thread_local! {
    static LAST: Cell<c_int> = const { Cell::new(0) };
}

/// The code to give a program, and the thread's last error where it is one.
pub fn told(answer: Answer) -> c_int {
    match answer {
        Ok(()) => 0,
        Err(Code(code)) => {
            // A thread that is ending has no last error any more.
            let _ = LAST.try_with(|last| last.set(code));
            code
        }
    }
}

/// The thread's last error; `forgets`: it has none afterwards.
pub fn last(forgets: bool) -> c_int {
    let take = |last: &Cell<c_int>| if forgets { last.replace(0) } else { last.get() };
    LAST.try_with(take).unwrap_or(0)
}

macro_rules! names {
    ($($code:literal $name:ident,)*) => {
        /// The runtime's name of a code, as its public header has it.
        fn name(code: c_int) -> Option<&'static CStr> {
            Some(match code {
                $($code => {
                    const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => panic!("a name"),
                    };
                    NAME
                })*
                _ => return None,
            })
        }
    };
}
names! {
    0 cudaSuccess,
    1 cudaErrorInvalidValue,
    2 cudaErrorMemoryAllocation,
    3 cudaErrorInitializationError,
    4 cudaErrorCudartUnloading,
    5 cudaErrorProfilerDisabled,
    6 cudaErrorProfilerNotInitialized,
    7 cudaErrorProfilerAlreadyStarted,
    8 cudaErrorProfilerAlreadyStopped,
    9 cudaErrorInvalidConfiguration,
    10 cudaErrorVersionTranslation,
    12 cudaErrorInvalidPitchValue,
    13 cudaErrorInvalidSymbol,
    16 cudaErrorInvalidHostPointer,
    17 cudaErrorInvalidDevicePointer,
    18 cudaErrorInvalidTexture,
    19 cudaErrorInvalidTextureBinding,
    20 cudaErrorInvalidChannelDescriptor,
    21 cudaErrorInvalidMemcpyDirection,
    22 cudaErrorAddressOfConstant,
    23 cudaErrorTextureFetchFailed,
    24 cudaErrorTextureNotBound,
    25 cudaErrorSynchronizationError,
    26 cudaErrorInvalidFilterSetting,
    27 cudaErrorInvalidNormSetting,
    28 cudaErrorMixedDeviceExecution,
    31 cudaErrorNotYetImplemented,
    32 cudaErrorMemoryValueTooLarge,
    34 cudaErrorStubLibrary,
    35 cudaErrorInsufficientDriver,
    36 cudaErrorCallRequiresNewerDriver,
    37 cudaErrorInvalidSurface,
    43 cudaErrorDuplicateVariableName,
    44 cudaErrorDuplicateTextureName,
    45 cudaErrorDuplicateSurfaceName,
    46 cudaErrorDevicesUnavailable,
    49 cudaErrorIncompatibleDriverContext,
    52 cudaErrorMissingConfiguration,
    53 cudaErrorPriorLaunchFailure,
    65 cudaErrorLaunchMaxDepthExceeded,
    66 cudaErrorLaunchFileScopedTex,
    67 cudaErrorLaunchFileScopedSurf,
    68 cudaErrorSyncDepthExceeded,
    69 cudaErrorLaunchPendingCountExceeded,
    98 cudaErrorInvalidDeviceFunction,
    100 cudaErrorNoDevice,
    101 cudaErrorInvalidDevice,
    102 cudaErrorDeviceNotLicensed,
    103 cudaErrorSoftwareValidityNotEstablished,
    127 cudaErrorStartupFailure,
    200 cudaErrorInvalidKernelImage,
    201 cudaErrorDeviceUninitialized,
    205 cudaErrorMapBufferObjectFailed,
    206 cudaErrorUnmapBufferObjectFailed,
    207 cudaErrorArrayIsMapped,
    208 cudaErrorAlreadyMapped,
    209 cudaErrorNoKernelImageForDevice,
    210 cudaErrorAlreadyAcquired,
    211 cudaErrorNotMapped,
    212 cudaErrorNotMappedAsArray,
    213 cudaErrorNotMappedAsPointer,
    214 cudaErrorECCUncorrectable,
    215 cudaErrorUnsupportedLimit,
    216 cudaErrorDeviceAlreadyInUse,
    217 cudaErrorPeerAccessUnsupported,
    218 cudaErrorInvalidPtx,
    219 cudaErrorInvalidGraphicsContext,
    220 cudaErrorNvlinkUncorrectable,
    221 cudaErrorJitCompilerNotFound,
    222 cudaErrorUnsupportedPtxVersion,
    223 cudaErrorJitCompilationDisabled,
    224 cudaErrorUnsupportedExecAffinity,
    225 cudaErrorUnsupportedDevSideSync,
    226 cudaErrorContained,
    227 cudaErrorInsufficientLoaderVersion,
    300 cudaErrorInvalidSource,
    301 cudaErrorFileNotFound,
    302 cudaErrorSharedObjectSymbolNotFound,
    303 cudaErrorSharedObjectInitFailed,
    304 cudaErrorOperatingSystem,
    400 cudaErrorInvalidResourceHandle,
    401 cudaErrorIllegalState,
    402 cudaErrorLossyQuery,
    500 cudaErrorSymbolNotFound,
    600 cudaErrorNotReady,
    700 cudaErrorIllegalAddress,
    701 cudaErrorLaunchOutOfResources,
    702 cudaErrorLaunchTimeout,
    703 cudaErrorLaunchIncompatibleTexturing,
    704 cudaErrorPeerAccessAlreadyEnabled,
    705 cudaErrorPeerAccessNotEnabled,
    708 cudaErrorSetOnActiveProcess,
    709 cudaErrorContextIsDestroyed,
    710 cudaErrorAssert,
    711 cudaErrorTooManyPeers,
    712 cudaErrorHostMemoryAlreadyRegistered,
    713 cudaErrorHostMemoryNotRegistered,
    714 cudaErrorHardwareStackError,
    715 cudaErrorIllegalInstruction,
    716 cudaErrorMisalignedAddress,
    717 cudaErrorInvalidAddressSpace,
    718 cudaErrorInvalidPc,
    719 cudaErrorLaunchFailure,
    720 cudaErrorCooperativeLaunchTooLarge,
    721 cudaErrorTensorMemoryLeak,
    800 cudaErrorNotPermitted,
    801 cudaErrorNotSupported,
    802 cudaErrorSystemNotReady,
    803 cudaErrorSystemDriverMismatch,
    804 cudaErrorCompatNotSupportedOnDevice,
    805 cudaErrorMpsConnectionFailed,
    806 cudaErrorMpsRpcFailure,
    807 cudaErrorMpsServerNotReady,
    808 cudaErrorMpsMaxClientsReached,
    809 cudaErrorMpsMaxConnectionsReached,
    810 cudaErrorMpsClientTerminated,
    811 cudaErrorCdpNotSupported,
    812 cudaErrorCdpVersionMismatch,
    900 cudaErrorStreamCaptureUnsupported,
    901 cudaErrorStreamCaptureInvalidated,
    902 cudaErrorStreamCaptureMerge,
    903 cudaErrorStreamCaptureUnmatched,
    904 cudaErrorStreamCaptureUnjoined,
    905 cudaErrorStreamCaptureIsolation,
    906 cudaErrorStreamCaptureImplicit,
    907 cudaErrorCapturedEvent,
    908 cudaErrorStreamCaptureWrongThread,
    909 cudaErrorTimeout,
    910 cudaErrorGraphExecUpdateFailure,
    911 cudaErrorExternalDevice,
    912 cudaErrorInvalidClusterSize,
    913 cudaErrorFunctionNotLoaded,
    914 cudaErrorInvalidResourceType,
    915 cudaErrorInvalidResourceConfiguration,
    917 cudaErrorStreamDetached,
    918 cudaErrorGraphRecaptureFailure,
    919 cudaErrorFabricNotReady,
    999 cudaErrorUnknown,
}

/// `cudaGetErrorName`.
#[unsafe(no_mangle)]
pub extern "C" fn partage_cudaGetErrorName(code: c_int) -> *const c_char {
    name(code).unwrap_or(c"unrecognized error code").as_ptr()
}

/// `cudaGetErrorString`: the driver's text where both have the code.
#[unsafe(no_mangle)]
pub extern "C" fn partage_cudaGetErrorString(code: c_int) -> *const c_char {
    let text = match code {
        0 => Some(c"no error"),
        13 => Some(c"invalid device symbol"),
        35 => Some(c"CUDA driver version is insufficient for CUDA runtime version"),
        36 => Some(c"API call is not supported in the installed CUDA driver"),
        52 => Some(c"__global__ function call is not configured"),
        98 => Some(c"invalid device function"),
        code => CuResult(code).description().or_else(|| name(code)),
    };
    text.unwrap_or(c"unrecognized error code").as_ptr()
}

/// `cudaGetLastError`.
#[unsafe(no_mangle)]
pub extern "C" fn partage_cudaGetLastError() -> c_int {
    last(true)
}

/// `cudaPeekAtLastError`.
#[unsafe(no_mangle)]
pub extern "C" fn partage_cudaPeekAtLastError() -> c_int {
    last(false)
}

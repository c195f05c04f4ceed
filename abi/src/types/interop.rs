// SPDX-License-Identifier: Apache-2.0
//! Frames shared with EGL.

use super::*;

c_layouts! {
    union CuEglFrameFrame = "CUeglFrame.frame" {
        pArray: [CuArray; 3],
        pPitch: [*mut c_void; 3],
    }
    struct CuEglFrame = "CUeglFrame" {
        frame: CuEglFrameFrame,
        width: c_uint,
        height: c_uint,
        depth: c_uint,
        pitch: c_uint,
        planeCount: c_uint,
        numChannels: c_uint,
        frameType: c_int,
        eglColorFormat: c_int,
        cuFormat: c_int,
    }
}

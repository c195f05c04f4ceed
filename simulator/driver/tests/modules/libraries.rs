// SPDX-License-Identifier: Apache-2.0
//! Libraries and their kernels, in several contexts.

use partage_abi::types::*;

use crate::loading::{KERNELS, fills, launch, text};
use crate::machine::{Driver, Value, call, on_machine, refused};

fn load(driver: &Driver) -> CuLibrary {
    let (image, mut library) = (text(KERNELS), CuLibrary::NULL);
    let none = std::ptr::null_mut;
    call!(
        driver,
        cuLibraryLoadData(
            &mut library,
            image.as_ptr().cast(),
            std::ptr::null_mut(),
            none(),
            0,
            std::ptr::null_mut(),
            none(),
            0
        )
    );
    library
}

fn kernel(driver: &Driver, library: CuLibrary, name: &str) -> CuKernel {
    let mut kernel = CuKernel::NULL;
    call!(driver, cuLibraryGetKernel(&mut kernel, library, text(name).as_ptr()));
    kernel
}

on_machine! {
    kernels_are_launched_as_they_are_and_as_functions => |driver| {
        let library = load(driver);
        let fill = kernel(driver, library, "fill_u32");
        fills(driver, CuFunction(fill.0), 21);
        let mut function = CuFunction::NULL;
        call!(driver, cuKernelGetFunction(&mut function, fill));
        fills(driver, function, 22);
        let mut owner = CuLibrary::NULL;
        call!(driver, cuKernelGetLibrary(&mut owner, fill));
        assert_eq!(owner, library);
        let mut count = 0;
        call!(driver, cuLibraryGetKernelCount(&mut count, library));
        assert_eq!(count, 7);
        let mut kernels = vec![CuKernel::NULL; 7];
        call!(driver, cuLibraryEnumerateKernels(kernels.as_mut_ptr(), 7, library));
        assert!(kernels.contains(&fill));
        let mut missing = CuKernel::NULL;
        refused!(NOT_FOUND: driver, cuLibraryGetKernel(&mut missing, library, c"nothing".as_ptr()));
    }

    each_context_has_its_own_variables => |driver| {
        let library = load(driver);
        let scale = kernel(driver, library, "scale_by_constant");
        let mut addresses = Vec::new();
        let mut other = CuContext::NULL;
        call!(driver, cuCtxCreate_v2(&mut other, 0, 0));
        for context in [driver.context, other] {
            call!(driver, cuCtxSetCurrent(context));
            let values = driver.memory(4);
            let parameters = [Value::Long(values), Value::Word(0), Value::Word(1)];
            assert_eq!(launch(driver, CuFunction(scale.0), 1, &parameters), CuResult::SUCCESS);
            let (mut address, mut bytes) = (0, 0);
            call!(driver, cuLibraryGetGlobal(&mut address, &mut bytes, library, c"launches".as_ptr()));
            assert_eq!((driver.words(address, 1), bytes), (vec![1], 4));
            addresses.push(address);
        }
        assert_ne!(addresses[0], addresses[1]);
        let (mut address, mut bytes) = (0, 0);
        refused!(NOT_FOUND: driver, cuLibraryGetManaged(&mut address, &mut bytes, library, c"launches".as_ptr()));
    }

    attributes_belong_to_a_kernel_and_a_device => |driver| {
        let library = load(driver);
        let reduce = kernel(driver, library, "sum_reduce");
        call!(driver, cuKernelSetAttribute(8, 64 << 10, reduce, 0));
        let (mut value, mut function) = (0, CuFunction::NULL);
        call!(driver, cuKernelGetAttribute(&mut value, 8, reduce, 0));
        assert_eq!(value, 64 << 10);
        call!(driver, cuKernelGetFunction(&mut function, reduce));
        call!(driver, cuFuncGetAttribute(&mut value, 8, function));
        assert_eq!(value, 64 << 10, "a function of the kernel has its attributes");
        refused!(INVALID_DEVICE: driver, cuKernelGetAttribute(&mut value, 8, reduce, 5));
        call!(driver, cuKernelSetCacheConfig(reduce, 1, 0));
        let (mut offset, mut size, mut count) = (0, 0, 0);
        call!(driver, cuKernelGetParamInfo(reduce, 1, &mut offset, &mut size));
        call!(driver, cuKernelGetParamCount(reduce, &mut count));
        assert_eq!((offset, size, count), (8, 8, 3));
    }

    unloading_ends_kernels_and_modules => |driver| {
        let library = load(driver);
        let fill = kernel(driver, library, "fill_u32");
        fills(driver, CuFunction(fill.0), 1);
        let mut module = CuModule::NULL;
        call!(driver, cuLibraryGetModule(&mut module, library));
        refused!(NOT_PERMITTED: driver, cuModuleUnload(module));
        call!(driver, cuLibraryUnload(library));
        refused!(INVALID_HANDLE: driver, cuLibraryUnload(library));
        let mut function = CuFunction::NULL;
        refused!(INVALID_HANDLE: driver, cuKernelGetFunction(&mut function, fill));
        refused!(INVALID_HANDLE: driver, cuModuleGetFunction(&mut function, module, c"fill_u32".as_ptr()));
        assert_eq!(launch(driver, CuFunction(fill.0), 1, &[Value::Long(0); 3]), CuResult::INVALID_HANDLE);
    }
}

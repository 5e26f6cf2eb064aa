#include "textflag.h"

// func vfork(args *cloneArgs) (pid, errno uintptr)
//
// The return address stays in a register, where the child can't change it.
TEXT ·vfork(SB),NOSPLIT|NOFRAME,$0-24
	MOVD	args+0(FP), R0
	MOVD	$88, R1		// sizeof(cloneArgs)
	MOVD	$435, R8	// clone3
	SVC
	CMN	$4095, R0
	BCS	failed
	MOVD	R0, pid+8(FP)
	MOVD	ZR, errno+16(FP)
	RET
failed:
	NEG	R0, R0
	MOVD	ZR, pid+8(FP)
	MOVD	R0, errno+16(FP)
	RET

#include "textflag.h"

// func vfork(args *cloneArgs) (pid, errno uintptr)
//
// The child goes on with this stack while the parent waits, so the place of the
// return address isn't the parent's any more.
TEXT ·vfork(SB),NOSPLIT|NOFRAME,$0-24
	MOVQ	args+0(FP), DI
	MOVQ	$88, SI		// sizeof(cloneArgs)
	MOVQ	$435, AX	// clone3
	POPQ	R12
	SYSCALL
	PUSHQ	R12
	CMPQ	AX, $-4095
	JCC	failed
	MOVQ	AX, pid+8(FP)
	MOVQ	$0, errno+16(FP)
	RET
failed:
	NEGQ	AX
	MOVQ	$0, pid+8(FP)
	MOVQ	AX, errno+16(FP)
	RET

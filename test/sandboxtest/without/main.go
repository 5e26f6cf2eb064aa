// Without builds programs with removable defences, into the directory that its argument names. They
// are for tests on a machine that can't build them (scripts/vm).
package main

import (
	"fmt"
	"os"

	"github.com/rockpool/rockpool/test/sandboxtest"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: without DIRECTORY")
		os.Exit(2)
	}
	if err := sandboxtest.WriteWithout(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

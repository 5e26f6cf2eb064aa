package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A Machine is where a report was made.
type Machine struct {
	CPUs      int    `json:"cpus"`
	Model     string `json:"model"`
	MemoryMiB int    `json:"memoryMiB"`
	Kernel    string `json:"kernel"`
	Go        string `json:"go"`
}

func (m Machine) String() string {
	return fmt.Sprintf("%d CPUs (%s), %d MiB, Linux %s, %s", m.CPUs, m.Model, m.MemoryMiB, m.Kernel, m.Go)
}

func inspect() Machine {
	m := Machine{CPUs: runtime.NumCPU(), Go: runtime.Version(), Model: field("/proc/cpuinfo", "model name")}
	if m.Model == "" {
		m.Model = runtime.GOARCH // ARM kernels don't name it
	}
	if kib, err := strconv.Atoi(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB")); err == nil {
		m.MemoryMiB = kib >> 10
	}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	return m
}

// field returns the value of the first "name: value" line of a file in /proc, or
// "".
func field(file, name string) string {
	text, _ := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

package api

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/test/e2e/bed"
)

// memoryOf returns the server's current memory in bytes.
func memoryOf(t *testing.T, p *bed.Process) int64 {
	t.Helper()
	text := readText(t, fmt.Sprintf("/proc/%d/status", p.Cmd.Process.Pid))
	_, after, _ := strings.Cut(text, "VmRSS:")
	kib, err := strconv.ParseInt(strings.Fields(after + " x")[0], 10, 64)
	if err != nil {
		t.Fatalf("the server's memory: %v in %s", err, text)
	}
	return kib << 10
}

// readText reads a file.
func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

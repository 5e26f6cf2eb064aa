package commands

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os/exec"
	"testing"

	"github.com/rockpool/rockpool/test/e2e/bed"
)

// TestE2EMCPOverAPrivateServer: on a machine without a server, an agent runs a program, which
// leaves nothing.
func TestE2EMCPOverAPrivateServer(t *testing.T) {
	environ, _ := privately(t)
	cmd := exec.Command(bed.Rockpool(t), "mcp") // it ends with its stdin
	cmd.Env = append(cmd.Environ(), environ...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}()
	lines := bufio.NewReader(out)
	ask := func(message string, into any) {
		t.Helper()
		fmt.Fprintln(in, message)
		line, err := lines.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(line, into); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	var hello struct {
		Result struct{ ServerInfo struct{ Name string } }
	}
	ask(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`, &hello)
	fmt.Fprintln(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	var ran struct {
		Result struct{ StructuredContent struct{ Stdout string } }
	}
	ask(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run_program","arguments":{"environment":"shell","shell":"echo $((6*7))"}}}`, &ran)
	if hello.Result.ServerInfo.Name != "rockpool" || ran.Result.StructuredContent.Stdout != "42\n" {
		t.Errorf("%+v %+v", hello, ran)
	}
}

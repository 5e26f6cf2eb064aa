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
	// An agent edits the files that it wrote.
	var opened struct {
		Result struct{ StructuredContent struct{ Session string } }
	}
	ask(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"open_session","arguments":{"environment":"shell"}}}`, &opened)
	var written struct {
		Result struct{ StructuredContent struct{ Written int } }
	}
	session := opened.Result.StructuredContent.Session
	ask(fmt.Sprintf(`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"write_files","arguments":{"session":%q,"files":[{"path":"src/a","text":"one\n"},{"path":"run.sh","text":"#!/bin/sh\necho ran"}]}}}`, session), &written)
	var edited struct {
		Result struct {
			StructuredContent struct{ Stdout, Stderr string }
		}
	}
	ask(fmt.Sprintf(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"execute","arguments":{"session":%q,"shell":"set -e; sed -i s/one/two/ src/a; mkdir src/x; mv src/a src/x; cat src/x/a; rm -r src; chmod +x run.sh; ./run.sh; git init -q; git add -A; git status --porcelain; touch $HOME/x; ls"}}}`, session), &edited)
	if out := edited.Result.StructuredContent; written.Result.StructuredContent.Written != 2 || out.Stdout != "two\nran\nA  run.sh\nrun.sh\n" {
		t.Errorf("%+v, %q %q", written, out.Stdout, out.Stderr)
	}
	// The result has the files of the program itself, its own first.
	var made struct {
		Result struct {
			StructuredContent struct {
				Stderr string
				Files  []struct{ Path string }
			}
		}
	}
	program, err := json.Marshal(`#include <stdio.h>
#include <sys/stat.h>
int main(void) { mkdir(".cache", 0755); fclose(fopen(".cache/a", "w")); fclose(fopen("result.csv", "w")); }`)
	if err != nil {
		t.Fatal(err)
	}
	ask(fmt.Sprintf(`{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"run_program","arguments":{"language":"c","source":%s}}}`, program), &made)
	if got := fmt.Sprint(made.Result.StructuredContent.Files); got != "[{result.csv} {.cache/a}]" {
		t.Errorf("it made %s: %s", got, made.Result.StructuredContent.Stderr)
	}
	if hello.Result.ServerInfo.Name != "rockpool" || ran.Result.StructuredContent.Stdout != "42\n" {
		t.Errorf("%+v %+v", hello, ran)
	}
}

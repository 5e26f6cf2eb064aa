package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
)

// readUpload reads a local file. One below the current directory keeps its
// directories, any other its name only.
func readUpload(path string) (client.FileInput, error) {
	info, err := os.Stat(path)
	if err != nil {
		return client.FileInput{}, err
	}
	if !info.Mode().IsRegular() {
		return client.FileInput{}, fmt.Errorf("%s isn't a regular file; name the files to upload one by one", path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return client.FileInput{}, err
	}
	up := client.FileInput{Path: filepath.Clean(path), Base64: data}
	if !filepath.IsLocal(up.Path) {
		up.Path = filepath.Base(up.Path)
	}
	if info.Mode()&0o111 != 0 || bytes.HasPrefix(data, []byte("#!")) {
		up.Mode = new("0755") // the server's default lets nobody but root execute it
	}
	return up, nil
}

// compileAndRun is a script for sh whose first argument is the source. The name
// is an argument rather than part of the script: whatever is in it runs nothing.
const compileAndRun = `source=$1; shift; cc -O2 -o /tmp/a.out "$source" -lm && exec /tmp/a.out "$@"`

// launch returns the command that runs a file with arguments, and what to show instead of one that
// has a script; "": it has none. The file's ending decides, then its #! line, then the environment.
func launch(environment string, file client.FileInput, arguments []string) (command []string, line string, err error) {
	path := file.Path
	if strings.HasPrefix(path, "-") {
		path = "./" + path // no interpreter may take it for an option
	}
	interpreters := map[string][]string{
		"python": {"python3"}, "node": {"node"}, "shell": {"sh"}, "c": {"sh", "-c", compileAndRun, "sh"},
	}
	endings := map[string]string{
		".py": "python", ".js": "node", ".mjs": "node", ".cjs": "node", ".c": "c", ".sh": "shell",
	}
	program, known := interpreters[endings[filepath.Ext(path)]]
	switch {
	case known:
	case bytes.HasPrefix(file.Base64, []byte("#!")):
		path = "./" + strings.TrimPrefix(path, "./")
	default:
		if program, known = interpreters[environment]; !known {
			return nil, "", fmt.Errorf("can't tell how to run %s in %s: give the command after --, for example: rockpool run --env %s %s -- ruby %s",
				file.Path, environment, environment, file.Path, path)
		}
	}
	command = slices.Concat(program, []string{path}, arguments)
	if slices.Contains(program, compileAndRun) {
		line = runtime.Execution{Command: slices.Concat([]string{path}, arguments)}.CommandLine()
	}
	return command, line, nil
}

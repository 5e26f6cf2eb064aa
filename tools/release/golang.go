package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime/debug"
	"strings"
)

// goModules returns the modules that the binaries were built from, and Go's own library.
func goModules(source string, binaries []string) ([]component, error) {
	versions := map[string]string{} // by path: the binaries share one go.mod
	goVersion := ""
	for _, binary := range binaries {
		info, err := buildinfo.ReadFile(binary)
		if err != nil {
			return nil, fmt.Errorf("build information of %s: %w", binary, err)
		}
		goVersion = info.GoVersion
		for _, module := range info.Deps {
			if module.Replace != nil {
				return nil, fmt.Errorf("%s: go.mod replaces %s, so its licence is unknown", binary, module.Path)
			}
			versions[module.Path] = module.Version
		}
	}
	dirs, err := directories(source, versions)
	if err != nil {
		return nil, err
	}
	root, err := output(source, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	std := strings.TrimPrefix(goVersion, "go")
	library, err := identified(component{Name: "Go's standard library", Version: std, PURL: "pkg:golang/std@" + std}, strings.TrimSpace(string(root)), "")
	if err != nil {
		return nil, err
	}
	all := []component{library}
	for path, version := range versions {
		module, err := identified(component{Name: path, Version: version, PURL: "pkg:golang/" + path + "@" + version}, dirs[path], "")
		if err != nil {
			return nil, err
		}
		all = append(all, module)
	}
	return all, nil
}

// directories returns the directories of the modules' sources.
func directories(source string, versions map[string]string) (map[string]string, error) {
	args := []string{"list", "-m", "-json"}
	for path := range versions {
		args = append(args, path)
	}
	out, err := output(source, "go", args...)
	if err != nil {
		return nil, err
	}
	dirs := map[string]string{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var module struct {
			debug.Module
			Dir string
		}
		if err := decoder.Decode(&module); errors.Is(err, io.EOF) {
			return dirs, nil
		} else if err != nil {
			return nil, err
		}
		if module.Version != versions[module.Path] {
			return nil, fmt.Errorf("%s is %s in a binary, but %s in go.mod", module.Path, versions[module.Path], module.Version)
		}
		dirs[module.Path] = module.Dir
	}
}

func output(dir, program string, args ...string) ([]byte, error) {
	command := exec.Command(program, args...)
	command.Dir = dir
	out, err := command.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil, fmt.Errorf("%s: %s", command, exit.Stderr)
	}
	return out, err
}

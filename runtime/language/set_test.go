package language_test

import (
	"strings"
	"testing"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/language"
)

func TestTheDefaultSetHasTheLanguages(t *testing.T) {
	set := language.Default()
	for id, file := range map[string]string{
		"python3": "x.py", "c": "a/b.c", "cpp": "x.cpp", "java": "Main.java", "nodejs": "x.mjs", "php": "x.php", "pascal": "x.pas", "octave": "x.m",
		"go": "x.go", "rust": "x.rs", "shell": "x.sh", "bash": "x.bash", "ruby": "x.rb", "perl": "x.pl", "lua": "x.lua",
	} {
		byID, known := set.ByID(id)
		byFile, found := set.ByFile(file)
		own, _ := set.ByFile(byID.FileName)
		if !known || !found || byFile.ID != id || own.ID != id || byID.Image == "" || len(byID.Environments) == 0 {
			t.Errorf("%s: %+v, by %s: %s, by its own file: %s", id, byID, file, byFile.ID, own.ID)
		}
		if len(byID.Version) == 0 && id != "shell" {
			t.Errorf("%s prints no version", id)
		}
	}
	if r, _ := set.ByID("node"); r.ID != "nodejs" {
		t.Errorf("the alias node is of %q, want \"nodejs\"", r.ID)
	}
	for _, name := range []string{"", "x", "x.", ".", "x.unknown", "py"} {
		if r, found := set.ByFile(name); found {
			t.Errorf("%q is taken for %s", name, r.ID)
		}
	}
}

func TestScriptsNameTheirLanguage(t *testing.T) {
	set := language.Of(append(language.Default().All(), language.Recipe{ID: "placed", Run: []string{"/opt/placed/bin/own", "{file}"}}, language.Recipe{ID: "dotted", Run: []string{"/opt/python3.13", "{file}"}})...)
	for line, want := range map[string]string{
		"#!/usr/bin/python3\nprint()": "python3", "#!/usr/bin/env python3\r\n": "python3", "#!/usr/bin/env -S python3 -u -B": "python3 -u -B",
		"#!/usr/bin/env -S A=b python3": "python3", "#!/usr/bin/python": "python3", "#!/usr/bin/python3.12 -u": "python3 -u", "#! /bin/sh -e": "shell -e",
		"#!/usr/bin/env node": "nodejs", "#!/usr/bin/env nodejs": "nodejs", "#!/bin/own": "placed", "#!/usr/bin/python3.13": "dotted", "#!/usr/bin/lua": "lua",
		"#!/usr/bin/python2": "", "#!/usr/bin/env gcc": "", "#!/usr/bin/java": "", "#!/usr/bin/env": "", "#!/usr/bin/env -S": "", "#!": "", "": "", "python3": "",
	} {
		r, args, found := set.ByScript([]byte(line))
		if got := strings.Join(append([]string{r.ID}, args...), " "); got != want || found != (want != "") {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

func TestByEnvironmentReturnsTheStrongestPreference(t *testing.T) {
	for id, want := range map[runtime.EnvironmentID]string{"python": "python3", "c": "c", "cpp": "cpp", "gcc": "c", "shell": "shell", "bash": "bash", "10": ""} {
		if r, found := language.Default().ByEnvironment(id); r.ID != want || found != (want != "") {
			t.Errorf("%s: %q, want %q", id, r.ID, want)
		}
	}
}

func TestAllIsACopy(t *testing.T) {
	set := language.Default()
	set.All()[0].ID = "changed"
	if set.All()[0].ID == "changed" {
		t.Error("a caller changed the set")
	}
}

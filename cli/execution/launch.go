package execution

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/language"
)

// ReadUpload reads a local file. A file below the current directory keeps its relative path; any
// other file keeps only its name.
func ReadUpload(path string) (client.FileInput, error) {
	info, err := os.Stat(path)
	if err != nil {
		return client.FileInput{}, err
	}
	if !info.Mode().IsRegular() {
		return client.FileInput{}, fmt.Errorf("%s isn't a regular file: give the files to upload one by one", path)
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
		up.Mode = new("0755") // by default only root could execute it
	}
	return up, nil
}

// A Launch is the environment and the commands for a file.
type Launch struct {
	Environment    string
	Build, Command []string // build: empty if nothing is built
	Path           string   // of the file in the runner
}

// LaunchOf returns how to run a file with arguments, by the server's languages. The file's
// extension decides, then its #! line, then the environment. If several languages have files with
// the extension, the environment's own one goes first. An empty environment means the one that
// serves the language.
func LaunchOf(languages []client.Language, environment string, file client.FileInput, arguments []string) (Launch, error) {
	l := Launch{Environment: environment, Path: file.Path}
	set := language.Of(recipes(languages)...)
	recipe, known := set.ByFile(file.Path)
	own, named := set.ByEnvironment(runtime.EnvironmentID(environment))
	if named && filepath.Ext(own.FileName) == filepath.Ext(file.Path) {
		recipe, known = own, true
	}
	var interpreterArgs []string
	scripted := !known && bytes.HasPrefix(file.Base64, []byte("#!"))
	if scripted {
		recipe, interpreterArgs, known = set.ByScript(file.Base64)
	}
	if !known && environment != "" && scripted { // the environment may have its interpreter
		l.Command = slices.Concat([]string{"./" + strings.TrimPrefix(file.Path, "./")}, arguments)
		return l, nil
	}
	if !known {
		recipe, known = own, named
	}
	switch {
	case !known && bytes.HasPrefix(file.Base64, []byte("\xef\xbb\xbf#!")):
		return l, fmt.Errorf("%s begins with a byte order mark (BOM), which hides its #! line: save the file as UTF-8 without BOM", file.Path)
	case !known && scripted:
		return l, fmt.Errorf("%s has no known file extension, and no language runs its first line %.100q: give an environment that has the interpreter with --env", file.Path, language.FirstLine(file.Base64))
	case !known && environment == "":
		return l, fmt.Errorf("%s has no known file extension: give an environment with --env; `rockpool languages` lists the extensions", file.Path)
	case !known:
		return l, fmt.Errorf("it is unknown how to run %s in %s: give the command after --: rockpool run --env %s %s -- COMMAND %s",
			file.Path, environment, environment, file.Path, file.Path)
	}
	if environment == "" {
		served, err := serving(languages, recipe)
		if err != nil {
			return l, err
		}
		l.Environment = served
	}
	program := recipe.Program(file.Path, file.Base64)
	program.Args, program.InterpreterArgs = arguments, interpreterArgs
	l.Path, l.Build, l.Command = program.File, recipe.BuildCommand(program), recipe.RunCommand(program)
	return l, nil
}

// serving returns the environment in which the server runs a language, or an *UnservedError.
func serving(languages []client.Language, recipe language.Recipe) (string, error) {
	i := slices.IndexFunc(languages, func(l client.Language) bool { return l.Id == recipe.ID })
	if served := languages[i].EnvironmentId; served != nil {
		return *served, nil
	}
	return "", &UnservedError{recipe}
}

// An UnservedError is the error for a language that no environment serves.
type UnservedError struct{ recipe language.Recipe }

func (e *UnservedError) Error() string {
	host, image := e.putCommand(""), e.putCommand(e.recipe.Image)
	switch {
	case host != "" && e.recipe.Image != "":
		return fmt.Sprintf("no environment serves %s: create one with `%s` if the server's machine has the language, else with `%s`. With tokens, only an OPERATOR can do that. Or give another environment with --env", e.recipe.ID, host, image)
	case host != "":
		return fmt.Sprintf("no environment serves %s: if the server's machine has the language, create one with `%s`. With tokens, only an OPERATOR can do that. Or give another environment with --env", e.recipe.ID, host)
	}
	return fmt.Sprintf("no environment serves %s: give one with --env", e.recipe.ID)
}

// putCommand returns the command that creates an environment for the language from an image, with
// "" from the server's machine. It returns "" if the language has no environment.
func (e *UnservedError) putCommand(image string) string {
	r := e.recipe
	if len(r.Environments) == 0 {
		return ""
	}
	var put strings.Builder
	fmt.Fprintf(&put, "rockpool env put %s", r.Environments[0])
	if image != "" {
		fmt.Fprintf(&put, " --image %s", image)
	}
	for _, l := range []struct {
		flag  string
		value int
		unit  string
	}{{"memory", r.Limits.MemoryMiB, "MiB"}, {"processes", r.Limits.Processes, ""}, {"workspace", r.Limits.WorkspaceMiB, "MiB"}} {
		if l.value > 0 {
			fmt.Fprintf(&put, " --%s %d%s", l.flag, l.value, l.unit)
		}
	}
	return put.String()
}

// OnPrivate returns the error if the server is a private one, which runs only the programs of this machine.
func (e *UnservedError) OnPrivate() error {
	then := "create an environment for it there"
	if put := e.putCommand(e.recipe.Image); put != "" && e.recipe.Image != "" {
		then = "then `" + put + "`"
	}
	return fmt.Errorf("no server listens at %s, and a temporary one can't run %s, because this machine lacks its programs: start a server with `rockpool serve`, and %s", command.DefaultServer, e.recipe.ID, then)
}

// recipes returns the server's languages as recipes.
func recipes(languages []client.Language) []language.Recipe {
	all := make([]language.Recipe, len(languages))
	for i, l := range languages {
		all[i] = language.Recipe{
			ID: l.Id, Name: l.Name, Aliases: l.Aliases, Extensions: l.Extensions, FileName: l.FileName, Build: l.Build, Run: l.Run, Image: l.Image,
			Limits: language.Limits{MemoryMiB: l.Limits.MemoryMiB, Processes: l.Limits.Processes, WorkspaceMiB: l.Limits.WorkspaceMiB, Seconds: l.Limits.TimeLimit},
		}
		for _, id := range l.EnvironmentIds {
			all[i].Environments = append(all[i].Environments, runtime.EnvironmentID(id))
		}
	}
	return all
}

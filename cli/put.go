package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/goccy/go-yaml"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/cli/output"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
)

type envPut struct {
	command.Flags
	output.Format
	ID        string             `arg:"" optional:"" name:"environment" complete:"environment" help:"Id of the environment. With --file: put only the one with this id."`
	Filename  string             `name:"file" short:"f" placeholder:"FILE" complete:"file" help:"Read environments from a YAML or JSON file, with the API's names; -: standard input."`
	Tenant    *string            `placeholder:"NAME" help:"The tenant that owns the environment. (your tenant; if you act for all tenants: default)"`
	Shared    *bool              `negatable:"" help:"Let every tenant see it and claim its runners. Only a caller for all tenants can set this. (no)"`
	Image     *string            `placeholder:"IMAGE" help:"Container image, or host: the programs of the server's machine. (host)"`
	PoolSize  *int               `placeholder:"N" help:"Idle runners to keep ready, 0 to 1000; 0: each claim starts one. (2)"`
	CPU       *int               `name:"cpu" placeholder:"MHZ" help:"CPU share in MHz, 10 to 1048576. (2000)"`
	Memory    *int               `type:"size" unit:"MiB" from:"16" to:"1048576" placeholder:"SIZE" help:"Memory, 16 MiB to 1 TiB. (256MiB)"`
	Processes *int               `placeholder:"N" help:"Maximum number of processes and threads, 16 to 65536. (128)"`
	Workspace *int               `type:"size" unit:"MiB" from:"1" to:"1048576" placeholder:"SIZE" help:"Disk space for files, 1 MiB to 1 TiB. (64MiB)"`
	Network   *bool              `negatable:"" help:"Let programs reach the public network; allow and allowNames in a file restrict it. (no)"`
	Port      []int              `placeholder:"PORT" help:"Expose this port of the runners. Can be given more than once; replaces the stored ports."`
	Isolation *runtime.Isolation `enum:"NAMESPACES,GVISOR,NONE,CLUSTER" placeholder:"TIER" help:"Isolation tier: NAMESPACES, GVISOR, NONE or CLUSTER. (NAMESPACES)"`
	Runtime   *string            `placeholder:"NAME" help:"The server's OCI runtime that creates the sandboxes; empty: Rockpool's own."`
	Variable  []string           `placeholder:"NAME=VALUE" sep:"none" help:"Environment variable for every command. Can be given more than once; replaces the stored variables."`

	WarmPython bool     `help:"Load python3 in each runner before it is idle: python commands then start in a few milliseconds."`
	WarmModule []string `placeholder:"MODULE" help:"Python module to import in advance, for example numpy; implies --warm-python. Can be given more than once; replaces the stored modules."`
	NoWarm     bool     `help:"Don't load an interpreter in advance."`

	NoPorts     bool `help:"Remove the stored ports; add ports with --port."`
	NoVariables bool `help:"Remove the stored variables; add variables with --variable."`

	DefaultTimeLimit *int   `type:"time" from:"0" to:"86400" placeholder:"TIME" help:"Time limit of executions that don't set one, 0 to 1d; 0: no limit. (60s)"`
	OutputLimit      *int64 `type:"size" from:"1024" to:"1099511627776" placeholder:"SIZE" help:"Maximum output of an execution, 1KiB to 1TiB. (16MiB)"`
	IfRevision       *int   `placeholder:"N" help:"Change it only if the stored revision is N; 0: only create."`
}

// A shown is an environment as env show prints it: the input of a put, and fields that can't be put.
type shown struct {
	Input    client.PutEnvironmentInput `yaml:",inline"`
	Revision *int                       `yaml:"revision"`
	Pool     map[string]any             `yaml:"pool"` // ignored: the pool's state can't be put
}

func (c *envPut) Run(s command.Streams) error {
	inputs, err := c.inputs(s.In)
	if err != nil {
		return err
	}
	ctx, stop := command.Stoppable()
	defer stop()
	server, err := c.Client()
	if err != nil {
		return err
	}
	t := output.Table{Head: []string{"ENVIRONMENT", "REVISION", ""}}
	all := []client.Environment{}
	for _, input := range inputs {
		var out *client.PutEnvironmentResponse
		err := command.ReportWaiting(s.Err, subject(input), func(report func(error)) (err error) {
			out, err = client.PutEnvironment(ctx, command.Reporting(server, command.Patience, report), input)
			return err
		})
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && len(all) == 0:
			return fmt.Errorf("put environment %s: %w", input.Id, refused(err, input))
		case err != nil:
			return errors.Join(c.Print(s.Out, all, t), fmt.Errorf("put environment %s: %w", input.Id, refused(err, input)))
		}
		put := out.PutEnvironment
		all = append(all, put.Environment)
		t.Rows = append(t.Rows, []string{input.Id, strconv.Itoa(put.Environment.Revision), map[bool]string{true: "created", false: "put"}[put.Created]})
	}
	return c.Print(s.Out, all, t)
}

// refused adds to a refusal what the user can do about it.
func refused(err error, input client.PutEnvironmentInput) error {
	var answer *client.Error
	switch {
	case !errors.As(err, &answer):
		return err
	case answer.Extensions.Code == runtime.CodeConflict && input.IfRevision != nil:
		return fmt.Errorf("%w; show it again and repeat your change there, or remove the revision to overwrite it", err)
	case answer.Extensions.Field == "tenant":
		return fmt.Errorf("%w; `rockpool tenant list` lists the tenants that you can use", err)
	}
	return err
}

// inputs returns the environments to put. Flags take precedence over the file.
func (c *envPut) inputs(in io.Reader) ([]client.PutEnvironmentInput, error) {
	var inputs []client.PutEnvironmentInput
	switch {
	case c.Filename != "":
		var err error
		if inputs, err = readEnvironments(c.Filename, in); err != nil {
			return nil, err
		}
	case c.ID == "":
		return nil, errors.New("give the id of an environment, or a file with --file")
	default:
		inputs = []client.PutEnvironmentInput{{Id: c.ID}}
	}
	var chosen []client.PutEnvironmentInput
	for _, input := range inputs {
		if c.ID != "" && input.Id != c.ID {
			continue
		}
		if err := c.applyTo(&input); err != nil {
			return nil, err
		}
		chosen = append(chosen, input)
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("%s has no environment %q", c.Filename, c.ID)
	}
	return chosen, nil
}

// applyTo overwrites the values of a file with those of the given flags. A flag that isn't given
// changes nothing.
func (c *envPut) applyTo(input *client.PutEnvironmentInput) error {
	if input.Resources == nil {
		input.Resources = &client.ResourcesInput{}
	}
	if input.Network == nil {
		input.Network = &client.NetworkInput{}
	}
	command.Override(&input.IfRevision, c.IfRevision)
	command.Override(&input.Tenant, c.Tenant)
	command.Override(&input.Shared, c.Shared)
	command.Override(&input.Image, c.Image)
	command.Override(&input.PoolSize, c.PoolSize)
	command.Override(&input.Resources.CpuMHz, c.CPU)
	command.Override(&input.Resources.MemoryMiB, c.Memory)
	command.Override(&input.Resources.Processes, c.Processes)
	command.Override(&input.Resources.WorkspaceMiB, c.Workspace)
	command.Override(&input.Network.Access, c.Network)
	command.Override(&input.Isolation, c.Isolation)
	command.Override(&input.Runtime, c.Runtime)
	command.Override(&input.DefaultTimeLimit, c.DefaultTimeLimit)
	command.Override(&input.OutputLimit, c.OutputLimit)
	if c.NoPorts {
		input.Network.ExposedPorts = []int{}
	}
	if c.Port != nil {
		input.Network.ExposedPorts = c.Port
	}
	switch {
	case c.NoWarm && (c.WarmPython || c.WarmModule != nil):
		return errors.New("--no-warm contradicts --warm-python and --warm-module")
	case c.NoWarm:
		input.Warm = &client.WarmInput{Interpreter: runtime.InterpreterNone}
	case c.WarmPython || c.WarmModule != nil:
		input.Warm = &client.WarmInput{Interpreter: runtime.InterpreterPython, Modules: c.WarmModule}
	}
	if c.NoVariables || c.Variable != nil {
		input.Variables = []client.VariableInput{}
	}
	variables, err := pairs[client.VariableInput]("--variable", c.Variable)
	if err != nil {
		return err
	}
	input.Variables = append(input.Variables, variables...)
	return nil
}

// readEnvironments reads every document of a file; "-" reads in. An error names the line.
func readEnvironments(name string, in io.Reader) ([]client.PutEnvironmentInput, error) {
	if name == "-" {
		name = "standard input"
	} else {
		file, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("--file: %w", err)
		}
		defer file.Close()
		in = file
	}
	decoder := yaml.NewDecoder(in, yaml.Strict())
	var all []client.PutEnvironmentInput
	for {
		var one shown
		err := decoder.Decode(&one)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %s", name, yaml.FormatError(err, false, true))
		}
		if one.Input.Id == "" {
			return nil, fmt.Errorf("read %s: environment %d has no id", name, len(all)+1)
		}
		if one.Input.IfRevision == nil {
			one.Input.IfRevision = one.Revision
		}
		all = append(all, one.Input)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("read %s: the file has no environment", name)
	}
	return all, nil
}

// subject returns in words what a put of an environment waits for.
func subject(input client.PutEnvironmentInput) string {
	if input.Image != nil && *input.Image != runtime.DefaultImage {
		return "the image " + *input.Image + " from its registry"
	}
	return "the environment " + input.Id
}

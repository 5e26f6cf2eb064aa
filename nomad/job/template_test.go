package job

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/refusal"
)

const ownTemplate = `{"Job": {
	"ID": "any", "Type": "batch", "Priority": 20, "Datacenters": ["x"],
	"TaskGroups": [{"Name": "g", "EphemeralDisk": {"SizeMB": 300},
		"RestartPolicy": {"Attempts": 1, "Mode": "fail"},
		"Tasks": [
			{"Name": "logger", "Driver": "docker", "Config": {"image": "logger"}, "Lifecycle": {"Hook": "prestart", "Sidecar": true}},
			{"Name": "runner", "Driver": "docker", "User": "1000", "Config": {"image": "alpine:3", "cap_drop": ["all"], "mount": [{"type": "bind"}]}, "Env": {"A": "b"}, "KillTimeout": 7000000000}
		]}]
}}`

func TestOwnTemplateKeepsItsSettings(t *testing.T) {
	c := completed(t, Config{Template: []byte(ownTemplate)})
	env := sample()
	env.Network.ExposedPorts = nil
	job, err := c.RenderTemplate(baseOf(t, c), env, 0)
	if err != nil {
		t.Fatal(err)
	}
	group := job.TaskGroups[0]
	task := group.Tasks[1]
	if *job.Priority != 20 || job.Datacenters[0] != "x" || *group.EphemeralDisk.SizeMB != 300 || *group.RestartPolicy.Attempts != 1 ||
		task.User != "1000" || task.Env["A"] != "b" || task.KillTimeout.Seconds() != 7 || task.Config["cap_drop"] == nil {
		t.Errorf("the template's own settings are lost: %+v", task)
	}
	if mounts, _ := json.Marshal(task.Config["mount"]); string(mounts) != `[{"type":"bind"}]` {
		t.Errorf("its mounts are %s", mounts)
	}
	if task.Config["image"] != "python:3.12" || *task.Resources.MemoryMB != 256 || !*task.LogConfig.Disabled || len(task.Artifacts) != 1 {
		t.Errorf("the environment isn't in it: %+v", task)
	}
	if len(group.Tasks[0].Artifacts) != 0 || group.Tasks[0].Config["image"] != "logger" {
		t.Error("its other task was changed")
	}
	env.Image = "host"
	if job, err = c.RenderTemplate(baseOf(t, c), env, 0); err != nil || job.TaskGroups[0].Tasks[1].Config["image"] != "alpine:3" {
		t.Errorf("an environment without an image doesn't get the template's: %v", err)
	}
}

// The agent removes System V objects only if no other container can have created them.
func TestOwnTemplateMayShareIPC(t *testing.T) {
	for mode, want := range map[string]bool{"": false, `"ipc_mode": "private", `: false, `"ipc_mode": "container:db", `: true, `"ipc_mode": "host", `: true} {
		c := completed(t, Config{Template: []byte(strings.Replace(ownTemplate, `"cap_drop"`, mode+`"cap_drop"`, 1))})
		env := sample()
		env.Network.ExposedPorts = nil
		job, err := c.RenderTemplate(baseOf(t, c), env, 0)
		if err != nil {
			t.Fatal(err)
		}
		args, _ := job.TaskGroups[0].Tasks[1].Config["args"].([]string)
		if len(args) == 0 || slices.Contains(args, "--shared-ipc") != want {
			t.Errorf("with %q the agent gets %q", mode, args)
		}
	}
}

func TestOwnTemplateIsChecked(t *testing.T) {
	for name, test := range map[string]struct{ old, changed, says string }{
		"a service":      {`"Type": "batch"`, `"Type": "service"`, "service"},
		"parameterized":  {`"Priority": 20`, `"ParameterizedJob": {}`, "parameterized"},
		"restarts":       {`"Mode": "fail"`, `"Mode": "delay"`, "forever"},
		"reschedules":    {`"EphemeralDisk": {"SizeMB": 300}`, `"ReschedulePolicy": {"Unlimited": true}`, "forever"},
		"no runner":      {`"Name": "runner"`, `"Name": "main"`, `named "runner"`},
		"a typo":         {`"Datacenters"`, `"Datacentres"`, "Datacentres"},
		"not JSON":       {`"Job"`, `Job`, "JSON"},
		"no groups":      {`"TaskGroups"`, `"Constraints"`, "JSON"},
		"unknown driver": {`"Driver": "docker", "User"`, `"Driver": "java", "User"`, "java"},
	} {
		text := strings.Replace(ownTemplate, test.old, test.changed, 1)
		if text == ownTemplate {
			t.Fatal(name)
		}
		_, err := (Config{Template: []byte(text)}).Base(nil)
		if refusal.Want(t, err, runtime.CodeInvalidInput, "template", name); !strings.Contains(runtime.MessageOf(err), test.says) {
			t.Errorf("%s: got %v, want %q in it", name, err, test.says)
		}
	}
	parsed := false
	_, err := (Config{Template: []byte(`job "x" {}`)}).Base(func(hcl string) (*api.Job, error) {
		parsed = hcl == `job "x" {}`
		return &api.Job{}, nil
	})
	if !parsed || err == nil {
		t.Errorf("HCL wasn't parsed, or what it says not checked: %v", err)
	}
}

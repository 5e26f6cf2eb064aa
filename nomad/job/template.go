package job

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/runtime"
)

// Base returns the job that templates are made from: the configured one or, without one, the
// built-in one. Parse lets Nomad parse HCL. INVALID_INPUT says what is wrong with a configured job.
func (c Config) Base(parse func(hcl string) (*api.Job, error)) (*api.Job, error) {
	if len(c.Template) == 0 {
		return c.builtIn()
	}
	job, err := readTemplate(c.Template, parse)
	if err != nil {
		return nil, runtime.Invalid("template", "must be a job in HCL or JSON: %v", err)
	}
	if job.Type != nil && *job.Type != api.JobTypeBatch {
		return nil, runtime.Invalid("template", "must be a batch job, not of type %q: Nomad would start a service's task again when it ends, without its files", *job.Type)
	}
	if job.ParameterizedJob != nil || job.Periodic != nil {
		return nil, runtime.Invalid("template", "must be neither parameterized nor periodic: each runner is a job of its own")
	}
	group, task, err := runnerTask(job)
	if err != nil {
		return nil, runtime.Invalid("template", "can't be used: %v", err)
	}
	if err := rejectUnlimited(group, task); err != nil {
		return nil, err
	}
	group.Count = cmp.Or(group.Count, new(1))
	job.Type = cmp.Or(job.Type, new(api.JobTypeBatch))
	clearServerFields(job)
	return job, nil
}

// readTemplate parses a job: JSON as printed by "nomad job run -output" or as in the API, or HCL.
func readTemplate(text []byte, parse func(hcl string) (*api.Job, error)) (*api.Job, error) {
	if !bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		return parse(string(text))
	}
	var wrapped struct{ Job json.RawMessage }
	if err := json.Unmarshal(text, &wrapped); err != nil {
		return nil, err
	}
	if wrapped.Job != nil {
		text = wrapped.Job
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	// A misspelt field must not be ignored.
	decoder.DisallowUnknownFields()
	job := &api.Job{}
	if err := decoder.Decode(job); err != nil {
		return nil, err
	}
	if len(job.TaskGroups) == 0 {
		return nil, fmt.Errorf(`the job has no "TaskGroups"`)
	}
	return job, nil
}

// rejectUnlimited rejects unlimited restarts: a runner that can't start must be reported, not retried forever.
func rejectUnlimited(group *api.TaskGroup, task *api.Task) error {
	for _, policy := range []*api.RestartPolicy{group.RestartPolicy, task.RestartPolicy} {
		if policy != nil && policy.Mode != nil && *policy.Mode != api.RestartPolicyModeFail {
			return runtime.Invalid("template", `must have restart { mode = "fail" }, not %q: a runner that can't start would be restarted forever`, *policy.Mode)
		}
	}
	if policy := group.ReschedulePolicy; policy != nil && policy.Unlimited != nil && *policy.Unlimited {
		return runtime.Invalid("template", "must have reschedule { unlimited = false } and attempts: a runner that can't start would be placed again forever")
	}
	return nil
}

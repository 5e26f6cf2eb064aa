package graph

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/vektah/gqlparser/v2/ast"

	"github.com/rockpool/rockpool/runtime/access"
)

// notFields are rules of operations that aren't fields of Query, Mutation or Subscription, with
// what needs them.
var notFields = map[access.Operation]string{
	"files":       "Runner.files",
	"searchFiles": "Runner.searchFiles",
	"file":        "Runner.file, File.downloadUrl and GET /files/",
	"taskEvents":  "Runner.events and Cluster.taskEvents",
	"output":      "Execution.output, Execution.lines, Execution.outputUrl and GET /outputs/",
	"metrics":     "GET /metrics",
}

// guardedFields are the fields below the operations whose resolvers check another rule.
var guardedFields = map[string]string{
	"Runner.files": "files", "Runner.searchFiles": "searchFiles", "Runner.file": "file", "Runner.events": "taskEvents", "File.downloadUrl": "file",
	"Language.environmentId": "environment", "Language.version": "environment",
	"Cluster.evaluations": "cluster", "Cluster.allocations": "cluster", "Cluster.taskEvents": "taskEvents",
	"Execution.runner": "runner", "Execution.output": "output", "Execution.lines": "output", "Execution.outputUrl": "output",
}

// reachedBy has the fields that lead to each other type. Its own fields belong to an object that
// the caller has already.
var reachedBy = map[string]string{
	"Environment": "environment, environments and putEnvironment", "Resources": "Environment and Allocation", "Network": "Environment", "Variable": "Environment",
	"Language": "languages", "LanguageLimits": "Language", "Warm": "Environment", "ClaimStats": "Environment", "PoolHistory": "Environment", "Durations": "Environment",
	"PoolStatus": "Environment and poolStatus", "ImageStatus": "PoolStatus", "PoolAlert": "poolAlerts and poolAlertHistory", "Activity": "activity",
	"Cluster": "cluster and drainCluster", "Capacity": "Cluster", "Draining": "Cluster", "TaskEvent": "Runner.events and Cluster.taskEvents",
	"Evaluation": "Cluster", "Shortage": "Evaluation", "Allocation": "Cluster",
	"Runner": "runner, runners, runnerEvents and claimRunner", "RunnerEvent": "runnerEvents", "Claim": "Runner", "Label": "Claim and Execution", "Loaded": "Runner", "RunnerUsage": "Runner", "PortMapping": "Runner", "File": "Runner.files", "FileSearch": "Runner.searchFiles", "FileMatch": "FileSearch", "FileChange": "fileChanges",
	"Execution": "execution, executions and what starts them", "OutputComparison": "Execution", "OutputDifference": "OutputComparison", "Usage": "Execution", "UsageNow": "Execution", "Timestamps": "Execution", "OutputPage": "Execution.output", "OutputChunk": "OutputPage", "OutputLinePage": "Execution.lines", "OutputLine": "OutputLinePage",
	"ExecutionEvent": "executionEvents and BatchExecutionEvent", "ExecutionStarted": "ExecutionEvent", "ExecutionOutput": "ExecutionEvent", "ExecutionOutputLost": "ExecutionEvent", "ExecutionResized": "ExecutionEvent", "ExecutionFinished": "ExecutionEvent",
	"Batch": "batch, batches and what starts them", "BatchCase": "Batch", "BatchEvent": "batchEvents", "BatchExecutionEvent": "BatchEvent", "BatchFinished": "BatchEvent",
	"Health": "health", "Attacks": "health", "ComponentHealth": "health",
	"Caller": "me", "Grant": "me and createGrant", "Token": "tokens and createToken", "Tenant": "tenants and putTenant", "Quotas": "Tenant", "TenantUse": "Tenant",
	"Ticket": "ticket, ticketEvents, claimRunner and cancelTicket", "AuditEntry": "auditLog", "AuditDetail": "AuditEntry", "WaitingClaim": "waitingClaims",
	"FileFailure": "updateFiles", "PageInfo": "every connection",
}

// TestEveryFieldHasARule checks that package access has a rule for each root field.
func TestEveryFieldHasARule(t *testing.T) {
	fields := map[access.Operation]bool{}
	for _, name := range []string{"Query", "Mutation", "Subscription"} {
		for _, field := range schema().Types[name].Fields {
			if strings.HasPrefix(field.Name, "__") {
				continue
			}
			op := access.Operation(field.Name)
			fields[op] = true
			if _, ok := access.RuleOf(op); !ok {
				t.Errorf("%s.%s has no rule in runtime/access", name, field.Name)
			}
		}
	}
	for _, op := range access.Operations() {
		rule, _ := access.RuleOf(op)
		switch at := notFields[op]; {
		case at == "" && !fields[op]:
			t.Errorf("the rule of %s belongs to no field: add the operation to notFields", op)
		case at != "" && fields[op]:
			t.Errorf("%s is a field: remove it from notFields", op)
		}
		if !slices.Contains(access.Roles(), rule.Role) {
			t.Errorf("the rule of %s has no role", op)
		}
		if rule.AllTenants && len(rule.Rights) > 0 {
			t.Errorf("%s is for all tenants, but a grant suffices", op)
		}
	}
}

// TestEveryTypeIsGuarded checks that an operation with a rule leads to each type. Fields that read
// more data have their own rule.
func TestEveryTypeIsGuarded(t *testing.T) {
	left := maps.Clone(reachedBy)
	guarded := maps.Clone(guardedFields)
	for _, d := range ours(schema()) {
		if d.Kind != ast.Object && d.Kind != ast.Interface || d.Name == "Query" || d.Name == "Mutation" || d.Name == "Subscription" {
			continue
		}
		listed := left[d.Name] != ""
		delete(left, d.Name)
		wraps := strings.HasSuffix(d.Name, "Payload") || strings.HasSuffix(d.Name, "Connection") || strings.HasSuffix(d.Name, "Edge")
		if !listed && !wraps {
			t.Errorf("add %s to reachedBy, with what guards its fields", d.Name)
		}
		for _, field := range d.Fields {
			at := d.Name + "." + field.Name
			rule, ok := guarded[at]
			delete(guarded, at)
			if _, exists := access.RuleOf(access.Operation(rule)); ok && !exists {
				t.Errorf("%s is guarded by %s, which has no rule", at, rule)
			}
			if len(field.Arguments) > 0 && !ok && at != "Batch.cases" { // of a batch that the caller has already
				t.Errorf("%s has arguments, so it reads more data: add its rule to guardedFields", at)
			}
		}
	}
	for name := range left {
		t.Errorf("there is no type %s", name)
	}
	for name := range guarded {
		t.Errorf("there is no field %s", name)
	}
}

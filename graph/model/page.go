package model

import (
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/audit"
	"github.com/rockpool/rockpool/runtime/tenantusage"
)

// The connections are pages of lists. An edge is an entry of a page with its cursor.
type (
	RunnerConnection       = Connection[runtime.Runner]
	RunnerEdge             = Edge[runtime.Runner]
	ExecutionConnection    = Connection[runtime.Execution]
	ExecutionEdge          = Edge[runtime.Execution]
	BatchConnection        = Connection[runtime.Batch]
	BatchEdge              = Edge[runtime.Batch]
	BatchCaseConnection    = Connection[runtime.Case]
	BatchCaseEdge          = Edge[runtime.Case]
	FileConnection         = Connection[runtime.File]
	FileEdge               = Edge[runtime.File]
	EvaluationConnection   = Connection[runtime.Evaluation]
	EvaluationEdge         = Edge[runtime.Evaluation]
	AllocationConnection   = Connection[runtime.Allocation]
	AllocationEdge         = Edge[runtime.Allocation]
	AuditEntryConnection   = Connection[audit.Entry]
	AuditEntryEdge         = Edge[audit.Entry]
	WaitingClaimConnection = Connection[tenantusage.WaitingClaim]
	WaitingClaimEdge       = Edge[tenantusage.WaitingClaim]
)

package store

import _ "embed" // the scripts are files beside the Go code that runs them

var (
	//go:embed dead.lua
	deadLua string
	//go:embed dead_bury.lua
	deadBuryLua string
	//go:embed dead_count.lua
	deadCountLua string
	//go:embed dead_list.lua
	deadListLua string
	//go:embed dead_resend.lua
	deadResendLua string
	//go:embed delivered.lua
	deliveredLua string
	//go:embed deliver_deferred.lua
	deferredLua string
	//go:embed deliver_failed.lua
	failedLua string
	//go:embed endpoint.lua
	endpointLua string
	//go:embed endpoint_resume.lua
	endpointResumeLua string
	//go:embed endpoint_told.lua
	endpointToldLua string
	//go:embed endpoint_troubled.lua
	endpointTroubledLua string
	//go:embed lease.lua
	leaseLua string
	//go:embed overdue.lua
	overdueLua string
)

// The scripts of the dispatcher, one per operation.
var (
	leaseScript            = newScript("lease_events", preludeLua, endpointLua, leaseLua)
	deliveredScript        = newScript("event_delivered", preludeLua, deadLua, endpointLua, deliveredLua)
	failedScript           = newScript("event_failed", preludeLua, deadLua, endpointLua, failedLua)
	deferredScript         = newScript("defer_events", preludeLua, deadLua, deferredLua)
	deadBuryScript         = newScript("bury_event", preludeLua, deadLua, deadBuryLua)
	deadListScript         = newScript("list_dead_letters", preludeLua, deadLua, deadListLua)
	deadResendScript       = newScript("resend_dead_letters", preludeLua, deadLua, deadResendLua)
	deadCountScript        = newScript("count_backlog", preludeLua, deadLua, deadCountLua)
	endpointResumeScript   = newScript("resume_endpoint", preludeLua, endpointLua, endpointResumeLua)
	endpointTroubledScript = newScript("troubled_endpoints", preludeLua, endpointLua, endpointTroubledLua)
	endpointToldScript     = newScript("endpoint_told", preludeLua, endpointLua, endpointToldLua)
	overdueScript          = newScript("count_overdue", preludeLua, overdueLua)
)

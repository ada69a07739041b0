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
)

// The scripts of the dispatcher, one per operation.
var (
	leaseScript            = newScript(preludeLua, endpointLua, leaseLua)
	deliveredScript        = newScript(preludeLua, deadLua, endpointLua, deliveredLua)
	failedScript           = newScript(preludeLua, deadLua, endpointLua, failedLua)
	deferredScript         = newScript(preludeLua, deadLua, deferredLua)
	deadBuryScript         = newScript(preludeLua, deadLua, deadBuryLua)
	deadListScript         = newScript(preludeLua, deadLua, deadListLua)
	deadResendScript       = newScript(preludeLua, deadLua, deadResendLua)
	deadCountScript        = newScript(preludeLua, deadLua, deadCountLua)
	endpointResumeScript   = newScript(preludeLua, endpointLua, endpointResumeLua)
	endpointTroubledScript = newScript(preludeLua, endpointLua, endpointTroubledLua)
	endpointToldScript     = newScript(preludeLua, endpointLua, endpointToldLua)
)

package store

// The scripts of the dispatcher, one per operation.
var (
	leaseScript            = newScript("lease_events", "lease")
	leaseLostScript        = newScript("lost_event", "lease_lost")
	deliveredScript        = newScript("event_delivered", "delivered")
	failedScript           = newScript("event_failed", "deliver_failed")
	deferredScript         = newScript("defer_events", "deliver_deferred")
	deadBuryScript         = newScript("bury_event", "dead_bury")
	deadListScript         = newScript("list_dead_letters", "dead_list")
	deadResendScript       = newScript("resend_dead_letters", "dead_resend")
	deadCountScript        = newScript("count_backlog", "dead_count")
	endpointResumeScript   = newScript("resume_endpoint", "endpoint_resume")
	endpointTroubledScript = newScript("troubled_endpoints", "endpoint_troubled")
	endpointToldScript     = newScript("endpoint_told", "endpoint_told")
)

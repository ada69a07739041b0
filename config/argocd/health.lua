-- Argo CD health check of Merchant and ApiKey. Install it with the entries of argocd-cm.yaml.
--
-- Healthy: published and up to date; also an ApiKey that is refused because a spec says so. Degraded: a
-- person must change something. Progressing: the operator works, retries or waits for another object.
local health = { status = "Progressing", message = "Waiting for the operator" }

if obj.status == nil or obj.status.conditions == nil then
  return health
end
-- The status describes an older spec.
if obj.status.observedGeneration ~= obj.metadata.generation then
  return health
end

local found = {}
for _, condition in ipairs(obj.status.conditions) do
  found[condition.type] = condition
end

-- The cluster is as Git wants it. Argo CD's Suspended would let a sync with several waves wait for ever.
local intended = { Disabled = true, MerchantSuspended = true, MerchantClosed = true }

local stalled, ready = found["Stalled"], found["Ready"]
if stalled ~= nil and stalled.status == "True" then
  health.status = intended[stalled.reason] and "Healthy" or "Degraded"
  health.message = stalled.message
elseif ready ~= nil then
  health.message = ready.message
  if ready.status == "True" then
    health.status = "Healthy"
  end
end
return health

-- Argo CD health check of Merchant and ApiKey. Install it with the entries of argocd-cm.yaml.
--
-- Healthy: the spec is in force; an ApiKey that the spec disables too. Degraded: a person must change
-- something. Progressing: the operator works, retries or waits for another object.
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

local stalled, ready = found["Stalled"], found["Ready"]
if stalled ~= nil and stalled.status == "True" then
  health.status = "Degraded"
  health.message = stalled.message
elseif ready ~= nil then
  health.message = ready.message
  if ready.status == "True" then
    health.status = "Healthy"
  end
end
return health

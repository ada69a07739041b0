package manifests

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/test/await"
)

// The API server is asked which FlowSchema each request gets, and says it in a header of its answer.
func TestFlowSchema(t *testing.T) {
	install(t, "crd")
	install(t, "flowschema")
	install(t, "flowschema-tenants")
	serviceAccount := func(namespace, name string) []string {
		return []string{
			"--as=system:serviceaccount:" + namespace + ":" + name, "--as-group=system:serviceaccounts",
			"--as-group=system:serviceaccounts:" + namespace, "--as-group=system:authenticated",
		}
	}
	const (
		merchant = "apiVersion: merchant-operator.io/v1alpha1\nkind: Merchant\nmetadata: {name: flow, namespace: default}\nspec: {displayName: Shop}\n"
		tenants  = "merchant-operator-tenants"
	)
	create := []string{"create", "--dry-run=server", "--validate=false", "-f", "-"}
	for name, test := range map[string]struct {
		as, request []string
		schema      string
	}{
		"a person":                     {[]string{"--as=somebody", "--as-group=system:authenticated"}, create, tenants},
		"a tenant's pipeline":          {serviceAccount(tenant, "pipeline"), create, tenants},
		"a neighbour of the roles":     {serviceAccount(system, "other"), create, tenants},
		"a tenant that deletes":        {serviceAccount(tenant, "pipeline"), []string{"delete", "merchant", "flow"}, "service-accounts"},
		"a tenant that reads":          {serviceAccount(tenant, "pipeline"), []string{"get", "merchants"}, "service-accounts"},
		"a tenant's other objects":     {serviceAccount(tenant, "pipeline"), []string{"create", "configmap", "flow"}, "service-accounts"},
		"a controller of the cluster":  {serviceAccount("kube-system", "namespace-controller"), create, "kube-system-service-accounts"},
		"the operator":                 {serviceAccount(system, "merchant-operator"), create, "merchant-operator"},
		"the operator, beyond tenants": {serviceAccount(system, "merchant-operator"), []string{"get", "nodes"}, "merchant-operator"},
		"the console":                  {serviceAccount(system, "merchant-operator-console"), create, "merchant-operator"},
	} {
		t.Run(name, func(t *testing.T) {
			want := strings.TrimSpace(kubectl(t, "", "get", "flowschema", test.schema, "-o", "jsonpath={.metadata.uid}"))
			await.Seeing(t, time.Minute, "the request is of "+test.schema, func() (string, bool) {
				_, err := cluster.Kubectl(merchant, slices.Concat(test.request, test.as, []string{"-v=9"})...) // nobody has a right to do it
				return "the answer has no " + want, err != nil && strings.Contains(err.Error(), want)
			})
		})
	}
}

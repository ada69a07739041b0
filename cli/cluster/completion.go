package cluster

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// completionTimeout is how long a person waits for a name after the tab key.
const completionTimeout = 3 * time.Second

// CompleteContexts completes --context.
func (a *Access) CompleteContexts(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	config, err := a.kubeconfig.RawConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []cobra.Completion
	for name := range config.Contexts {
		names = append(names, name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// CompleteMerchantFlag completes a flag with the names of Merchants.
func (a *Access) CompleteMerchantFlag(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.CompleteMerchants(cmd, nil, typed)
}

// CompleteMerchants completes the first argument with the names of Merchants.
func (a *Access) CompleteMerchants(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.complete(cmd, args, typed, &v1alpha1.MerchantList{}, func(list client.ObjectList) (names []cobra.Completion) {
		for _, merchant := range list.(*v1alpha1.MerchantList).Items { //nolint:forcetypeassert // it is the list from above
			names = append(names, cobra.CompletionWithDesc(merchant.Name, merchant.Spec.DisplayName))
		}
		return names
	})
}

// CompleteKeys completes the first argument with the names of ApiKeys.
func (a *Access) CompleteKeys(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.complete(cmd, args, typed, &v1alpha1.ApiKeyList{}, func(list client.ObjectList) (names []cobra.Completion) {
		for _, key := range list.(*v1alpha1.ApiKeyList).Items { //nolint:forcetypeassert // it is the list from above
			names = append(names, cobra.CompletionWithDesc(key.Name, key.Spec.MerchantRef.Name))
		}
		return names
	})
}

func (a *Access) complete(
	cmd *cobra.Command, args []string, typed string, list client.ObjectList, complete func(client.ObjectList) []cobra.Completion,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	kube, err := a.Connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	if err := kube.List(ctx, list, client.InNamespace(kube.Namespace)); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var matching []cobra.Completion
	for _, name := range complete(list) {
		if strings.HasPrefix(name, typed) {
			matching = append(matching, name)
		}
	}
	return matching, cobra.ShellCompDirectiveNoFileComp
}

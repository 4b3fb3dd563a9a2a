"""Every module has a test file of its own name, or is listed here with the file that covers it."""

from pathlib import Path

import umpteen

HERE = Path(__file__).parent
SOURCE = Path(umpteen.__file__).parent
COVERED = {
    "cli/test_data.py": "cli/data_split data/display",
    "cli/test_predict_files.py": "data/parquet_output data/record_output",
    "cli/test_repair_and_backup.py": "cli/backup cli/repair cli/restore",
    "cli/test_report.py": "report/writing",
    "cli/test_table_options.py": "cli/_options",
    "compute/kernels/test_fused_norm.py": "compute/kernels/random_bits",
    "compute/optim/test_row_update.py": "compute/kernels/row_kernel",
    "compute/streaming/test_label_blocks.py": """
        compute/streaming/explicit_gradients compute/streaming/label_passes
        compute/streaming/label_products compute/streaming/label_stream""",
    "compute/test_text_mean.py": "compute/kernels/text_sum",
    "config/test_config.py": "config/checks config/loading config/schema config/settings",
    "contracts/test_augmentations.py": "data/augment/gandalf data/augment/glas",
    "contracts/test_formats.py": """
        data/convert data/formats/folder data/formats/hugging_face data/formats/jsonl
        data/formats/lf_json data/formats/lines data/formats/npz data/formats/records
        data/formats/targets data/formats/texts data/formats/writing data/formats/xc_text""",
    "contracts/test_indexes.py": "index/base index/pairs",
    "contracts/test_metrics.py": "metrics/base",
    "contracts/test_retrievers.py": """
        ranking/retriever_specs ranking/retrievers/base ranking/retrievers/knn
        ranking/retrievers/lexical ranking/retrievers/added_names ranking/retrievers/backlinks
        ranking/retrievers/character_ranker
        ranking/retrievers/name_characters ranking/retrievers/names ranking/retrievers/vectors""",
    "data/augment/test_graph.py": "data/augment/self_annotation data/augment/walks",
    "data/test_dataset.py": "data/csr",
    "data/test_dataset_from_lists.py": "data/lists",
    "data/test_formats_annif.py": """
        data/formats/annif_csv data/formats/annif_documents data/formats/annif_folder""",
    "data/test_formats_errors.py": "data/formats/recognise",
    "data/test_growing_array.py": "data/text_scan",
    "data/test_indicator_columns.py": "data/formats/indicator_columns",
    "data/test_labels.py": "data/label_columns",
    "data/test_other_programs.py": "data/formats/fasttext",
    "data/test_package_tables.py": "data/sources/apt_packages",
    "data/test_pool.py": "data/pool_on_device",
    "data/test_row_batches.py": "data/formats/row_batches",
    "data/test_sources_assembly.py": "data/sources/assembly",
    "data/test_sources_debian.py": "data/sources/debian",
    "data/test_sources_debtags.py": "data/sources/debtags",
    "data/test_sources_icd10.py": "data/sources/icd10",
    "data/test_sources_synthetic.py": "data/sources/synthetic",
    "data/test_sources_wordnet.py": "data/sources/wordnet",
    "data/test_statistics.py": "data/frequency_plot",
    "data/test_tables.py": """
        data/formats/arrow_table data/formats/delimited data/formats/delimited_table
        data/formats/json_table data/formats/label_separators data/formats/parquet
        data/formats/separator_choice data/formats/table_columns data/formats/table_options
        data/formats/table_rows data/formats/tables""",
    "data/test_vocabulary.py": "data/vocabulary_tables",
    "export/test_networks.py": """
        cli/export export/onnx_model export/openvino_model model/exported_encoder""",
    "export/test_sentence_model.py": "export/modules model/text_encoder",
    "export/test_vector_stores.py": """
        export/label_rows export/lance_labels export/parquet_labels export/postgres_labels
        export/qdrant_labels""",
    "index/test_faiss_index.py": "index/faiss_kinds",
    "index/test_ivfpq.py": "index/ivfpq_files index/mapped_rows",
    "index/test_two_pass.py": "index/groups",
    "model/test_frugal.py": """
        model/frugal/bag model/frugal/base model/frugal/convolution model/frugal/tables""",
    "model/test_inception.py": "model/frugal/inception",
    "model/test_model.py": "model/vectors",
    "model/test_packed.py": "model/packed_forward model/packed_layout",
    "model/test_token_vectors.py": "model/frugal/token_vectors",
    "model/test_transformer.py": "model/pretrained",
    "plan/test_estimates.py": """
        plan/encoders plan/estimate plan/exchange plan/formulas plan/from_data plan/job
        plan/machines""",
    "ranking/test_correction_fitting.py": "ranking/correction_features ranking/corrections",
    "ranking/lexical/test_added_labels.py": "ranking/lexical/growing_columns",
    "ranking/lexical/test_descent.py": """
        ranking/lexical/device_loss ranking/lexical/hard_negatives ranking/lexical/host_loss
        ranking/lexical/pair_features ranking/lexical/ranker_training""",
    "ranking/lexical/test_lexical_ranker.py": """
        ranking/lexical/frequent_terms ranking/lexical/sparsity""",
    "ranking/lexical/test_one_vs_rest.py": """
        ranking/lexical/batches ranking/lexical/one_vs_rest_training""",
    "ranking/lexical/test_sparse_topk.py": "ranking/lexical/device_topk",
    "ranking/reranking/test_learning.py": """
        ranking/reranking/cost ranking/reranking/decision ranking/reranking/listwise
        ranking/reranking/reranker ranking/reranking/shortlist ranking/reranking/spec""",
    "ranking/reranking/test_matching.py": """
        ranking/reranking/pair_match ranking/reranking/text_match ranking/reranking/token_match""",
    "ranking/reranking/test_stage.py": """
        training/rerank training/rerank_fitting training/rerank_texts training/run_to_rerank""",
    "ranking/reranking/test_token_encoder.py": "ranking/reranking/pair_scorer",
    "ranking/test_ensemble.py": "ranking/ensemble_fitting ranking/prior",
    "ranking/test_examples.py": "ranking/growing_rows ranking/trained_examples",
    "ranking/test_label_vectors.py": "ranking/added_labels",
    "ranking/test_snapshot_source.py": "ranking/encoded_changes ranking/snapshot",
    "ranking/test_variants.py": "ranking/variant_fitting",
    "report/test_looking_into_outcomes.py": "report/cases report/outcomes",
    "report/test_page.py": "report/ensemble report/label_table report/overview report/sections",
    "serving/test_app.py": """
        serving/errors serving/routes_about serving/routes_changes serving/routes_examples
        serving/routes_labels serving/routes_predict serving/routes_report
        serving/routes_suggest serving/schemas""",
    "serving/test_engine.py": "serving/answering serving/neighbours serving/served_model",
    "serving/test_middleware.py": "serving/access serving/connections",
    "serving/test_models.py": "cli/models serving/routes_models",
    "serving/test_process.py": "cli/serve serving/costs serving/options serving/run",
    "store/test_change_store.py": """
        store/connections store/poll store/reader store/reading store/state store/writer
        store/writing""",
    "store/test_damage.py": "store/repair store/schema store/revision_file",
    "study/test_running.py": "study/outcomes study/results study/sources study/toml_values",
    "test_arrow_predictions.py": "prediction_records",
    "test_evaluation.py": "head_names",
    "hostile/test_same_out.py": "locks",
    "test_hub.py": "model_card",
    "test_judgements.py": "cli/judge teachers",
    "test_packaging.py": "__main__",
    "test_per_label.py": "metrics/per_label",
    "cli/test_train.py": "log_lines",
    "test_predictor.py": "display errors escape label_indexes ranking/queries ranking/ranker types",
    "test_predictor_pickle.py": "run_files",
    "test_sklearn.py": "sklearn/classifier sklearn/scorers sklearn/targets",
    "training/test_bank_loss.py": "training/embedding_bank",
    "training/test_devices.py": "training/build_loop",
    "training/test_checkpoint.py": "training/checkpoint_shards training/checkpoint_tensors",
    "cli/test_fit_ensemble.py": "training/same_labels",
    "training/test_fit_ensemble.py": """
        training/cross_validation training/ensemble_validation training/fit_retrievers""",
    "training/test_loop.py": "training/progress training/session",
    "training/test_refresh.py": "training/refresh_cost",
    "training/test_row_adamw.py": "training/row_optimizer",
    "training/test_run.py": """
        training/factories training/initial_files training/interrupts training/lock
        training/selection""",
    "training/test_run_on_ranks.py": "training/data_parallel training/pool_on_ranks",
    "training/test_stages.py": "training/frozen",
    "training/test_start.py": "cli/start ranking/start_ensemble training/self_training",
    "training/test_warm_start.py": (
        "training/previous_changes training/warm_labels training/warm_settings"
    ),
}
"""Test files, each with the modules it covers beside the one of its name."""


def mirrored(module: str) -> bool:
    folder, _, name = module.rpartition("/")
    return (HERE / folder / f"test_{name.lstrip('_')}.py").is_file()


def test_every_module_has_a_test_file_of_its_name_or_is_listed():
    files = (file.relative_to(SOURCE).with_suffix("") for file in SOURCE.rglob("*.py"))
    alone = {str(file) for file in files if file.name != "__init__" and not mirrored(str(file))}
    listed = [module for modules in COVERED.values() for module in modules.split()]
    assert sorted(alone - set(listed)) == [], "add a test file, or name the one that covers it"
    assert sorted(set(listed) - alone) == [], "gone, or with a test file of its own name"
    assert len(set(listed)) == len(listed)
    assert [file for file in COVERED if not (HERE / file).is_file()] == []
